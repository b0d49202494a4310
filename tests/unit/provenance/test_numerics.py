"""Numerics ids: code that gives the same bits is the same code."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedrepro
from fedrepro.methods import registry
from fedrepro.provenance import fingerprint, numerics
from fedrepro.provenance.identity import Identity, differences
from fedrepro.provenance.syntax import syntax_of
from fedrepro.run import runner
from fedrepro.support import plugins
from support.places import ROOT
from support.refusals import refused
from support.tiny_run import dataset, partition, run_spec


def test_every_part_of_the_code_is_blessed() -> None:
    """Else say `make bless`: it shows whether the change keeps every bit."""
    entries, now = numerics.blessed(), numerics.today()
    assert entries.keys() == now.keys()
    wrong = {part for part, code in now.items() if entries[part]["code"] != code}
    assert not wrong, "changed since the last `make bless`"


def test_a_run_has_the_ids_of_its_parts() -> None:
    found = numerics.of_run(run_spec("ima+fedprox@released+fedadam", model="twonn"))
    names = {"core", "method ima", "method fedprox", "method fedadam", "model twonn"}
    assert found.keys() == names
    assert found == {part: numerics.blessed()[part]["id"] for part in names}


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """What is blessed, to be changed."""
    changed = {part: dict(entry) for part, entry in numerics.blessed().items()}
    monkeypatch.setattr(numerics, "blessed", lambda: changed)
    return changed


def test_blessed_code_keeps_the_id_of_the_code_before(entries: dict[str, dict[str, str]]) -> None:
    entries["core"]["id"] = "older"
    assert numerics.of_run(run_spec())["core"] == "older"


def test_code_that_nobody_blessed_is_other_code(entries: dict[str, dict[str, str]]) -> None:
    entries["method fedavg"] = {"id": "older", "code": "of before the change"}
    found = numerics.of_run(run_spec())
    assert found["method fedavg"] == numerics.today()["method fedavg"] != "older"
    del entries["core"]
    assert numerics.of_run(run_spec())["core"] == numerics.today()["core"]


def test_an_id_is_that_of_today_by_any_of_its_former_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not the other way round; where a part has several ids, each is compared."""
    monkeypatch.setattr(numerics, "FORMER", {"new": ("older", "oldest")})
    for then, now, parts in (
        ({"a": "oldest"}, {"a": "new"}, []),
        ({"a": "new"}, {"a": "older"}, ["a"]),
        ({"a": "x older"}, {"a": "x new"}, []),
        ({"a": "x older"}, {"a": "y new"}, ["a"]),
        ({"a": "x"}, {"a": "x new"}, ["a"]),
        ({"a": "x new"}, {"a": "x"}, ["a"]),
        ({"a": "1", "b": "2"}, {"a": "1"}, ["b"]),
        ({"b": "1"}, {"b": "2", "a": "1"}, ["a", "b"]),
    ):
        assert numerics.differing(then, now) == parts


def test_a_renamed_part_is_found_by_its_name_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "RENAMED", {"method former": "method latter"})
    then = Identity.of({"numerics": {"method former": "1", "core": "2"}})
    now = Identity(numerics={"method latter": "1", "core": "2"})
    assert differences(then, now) == []
    (one,) = differences(then, Identity(numerics={"method latter": "3", "core": "2"}))
    assert (one.key, one.recorded, one.wanted) == ("method latter", "1", "3")


def test_an_analysis_has_its_own_id_and_those_of_the_method_that_it_calls(
    entries: dict[str, dict[str, str]],
) -> None:
    file = fingerprint.PACKAGE / "papers/aaggff/regret_of_run.py"
    entries["analysis regret_of_run"]["id"] = "blessed"
    assert numerics.of_analysis(file) == "analysis regret_of_run: blessed"
    entries["method aaggff_s"]["id"] = "older"
    words = numerics.of_analysis(file, "aaggff_s+fedavg")
    assert words.startswith("analysis regret_of_run: blessed core: ")
    assert " method aaggff_s: older method fedavg: " in words


def test_a_plugin_follows_its_own_code_and_the_ids_of_what_it_extends(
    tmp_path: Path, entries: dict[str, dict[str, str]]
) -> None:
    file = tmp_path / "mine.py"

    def now(text: str) -> str:
        file.write_text(text, encoding="utf-8")
        for cached in (
            plugins.content_of, numerics._of_plugin, fingerprint._imported, numerics.syntax_of,
        ):  # fmt: skip
            cached.cache_clear()
        return numerics.of_file("method mine", file)

    text = "from fedrepro.methods.fedprox import FedProx\nclass Mine(FedProx):\n    mu = 1\n"
    before, id_of_fedprox = now(text), entries["method fedprox"]["id"]
    assert now(f"# a remark\n{text}") == before
    assert now(text.replace("1", "2")) != before
    entries["method fedprox"]["id"] = "other numbers"
    assert now(text) != before
    entries["method fedprox"]["id"] = id_of_fedprox
    entries["core"] = {"id": "other numbers", "code": "other"}
    assert now(text) == before  # the core is a part by itself


FILES = {
    "config/config.yaml": "plugins: { methods: methods }\n",
    "methods/mine.py": (
        "import sys\nfrom pathlib import Path\nfrom fedrepro.engine import tree\n"
        "HERE = Path(__file__).parent\n"
        "sys.path[:0] = [str(HERE.parent), str(HERE.parent / 'lib')]\n"
        "from helpers.scaling import factor\nfrom shift import shift\n"
        "TABLES = HERE / 'tables'\nx = (TABLES / 'deep' / 'x.json').read_text()\n"
        "y = Path('methods/y.txt').read_text() + HERE.with_name('z.txt').read_text()\n"
    ),
    "helpers/scaling.py": "factor = 1\n",
    "lib/shift.py": "shift = 1\n",
    "methods/tables/deep/x.json": "1",
    "methods/y.txt": "1",
    "z.txt": "1",
    "notes.txt": "1",
}


def made(bench: Path, name: str = "", text: str | None = None) -> Path:
    """A new workbench's method, which imports a package of ours and helpers, and reads files.

    Args:
        name: of a file with another text, or of one that is not there.
    """
    for file, usual in FILES.items():
        content = text if file == name else usual
        if content is not None:
            (bench / file).parent.mkdir(parents=True, exist_ok=True)
            (bench / file).write_text(content, encoding="utf-8")
    return bench / "methods/mine.py"


def id_of(file: Path) -> str:
    return numerics.of_file(f"method {file.stem}", file)


def test_a_plugin_s_id_is_the_same_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a clone, below one or elsewhere, and whether or not it was imported."""
    package = "clone/src/fedrepro/engine"
    shutil.copytree(fingerprint.PACKAGE / "engine", tmp_path / package)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "clone/src")])
    ids = set()
    for bench, here in (
        ("clone/of/another", "clone"),
        ("clone", "clone"),
        ("clone/a", "clone/a"),
        ("clone/b", "clone/b/methods"),
        ("c", "c"),
        ("d", "clone"),
    ):
        file = made(tmp_path / bench)
        monkeypatch.chdir(tmp_path / here)
        ids.add(id_of(file))
    monkeypatch.chdir(tmp_path / "c")
    plugins.import_file("methods", tmp_path / "c/methods/mine.py")  # which extends sys.path
    assert ids == {id_of(made(tmp_path / "e"))}


def test_packages_of_ours_are_no_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "src")
    monkeypatch.chdir(ROOT)
    code = fingerprint.closure([ROOT / "examples/fedrep/methods/fedavg_ft.py"])
    assert code.isdisjoint(fingerprint.PACKAGE.rglob("__init__.py"))


@pytest.mark.parametrize("name", FILES)
def test_what_a_plugin_imports_and_reads_below_its_workbench_is_its_code(
    tmp_path: Path, name: str
) -> None:
    before, unread = id_of(made(tmp_path / "before")), name in ("notes.txt", "config/config.yaml")
    assert (id_of(made(tmp_path / "edited", name, "factor = 2\n")) == before) == unread
    if not name.startswith(("methods/mine", "config")):
        assert (id_of(made(tmp_path / "gone", name)) == before) == unread


def test_installed_packages_and_later_files_of_a_name_are_no_helpers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several files of one name, Python imports the first; versions tell installed packages."""
    code = "import sys\nimport shift\nimport installed\n"
    ids = set()
    for number in (1, 2):
        bench = tmp_path / str(number)
        made(bench, "methods/mine.py", code)
        for name in ("methods/shift.py", "venv/lib/installed.py", "shift.py"):
            (bench / name).parent.mkdir(parents=True, exist_ok=True)
            text = f"x = {1 if name.startswith('methods') else number}\n"
            (bench / name).write_text(text, encoding="utf-8")
        monkeypatch.setattr(sys, "prefix", str(bench / "venv"))
        monkeypatch.setattr(sys, "path", [*sys.path, str(bench / "venv/lib")])
        ids.add(id_of(bench / "methods/mine.py"))
    assert len(ids) == 1


def test_files_that_exchange_their_contents_are_others(tmp_path: Path) -> None:
    """But results of the time when only contents counted stay current."""
    one, other = made(tmp_path / "one", "z.txt", "2"), made(tmp_path / "other", "notes.txt", "1")
    (other.parent / "y.txt").write_text("2")
    assert id_of(one) != id_of(other)
    read = [one.parent / name for name in ("y.txt", "../z.txt", "tables/deep/x.json")]
    code = [one, *(one.parents[1] / name for name in ("helpers/scaling.py", "lib/shift.py"))]
    digests = [syntax_of(file).digest for file in code]
    digests += [hashlib.sha256(file.read_bytes()).hexdigest() for file in read]
    former = numerics._short(fingerprint.of_text(" ".join(sorted(digests))))
    for file in (one, other):
        now = {"method mine": id_of(file)}
        assert numerics.differing({"method mine": former}, now) == []


def test_a_plugin_of_a_library_has_the_files_beside_it_and_those_of_the_workbench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its code has texts that can't name a file, and folders that contain themselves."""
    ids = set()
    for number, text in enumerate(("one", "other", "one")):
        bench, library = made(tmp_path / f"{number}").parents[1], tmp_path / f"library{number}"
        library.mkdir()
        for name in ("a", "b"):
            (library / name).symlink_to(library)
        code = f"x = 'beside.txt', 'notes.txt', 'a', 'b', '{'漢' * 250}'\n"
        (library / "own.py").write_text(code, encoding="utf-8")
        (library / "beside.txt").write_text(text)
        (bench / "notes.txt").write_text("other" if number == 2 else "one")
        monkeypatch.chdir(bench)
        ids.add(id_of(library / "own.py"))
    assert len(ids) == 3


def former_id(*files: Path) -> str:
    """The id of plug-ins' code by the rule that counted packages of ours as helpers."""
    digests = sorted(syntax_of(file).digest for file in files)
    return numerics._short(fingerprint.of_text(" ".join(digests)))


def test_results_that_plugins_made_in_a_clone_before_stay_current(tmp_path: Path) -> None:
    text = "from fedrepro.engine import tree\n\n\ndef mine(shape, outputs):\n    return {}\n"
    for name in ("mine", "edited"):
        (tmp_path / f"{name}.py").write_text(text.format(len(name)), encoding="utf-8")
    file, package = tmp_path / "mine.py", fingerprint.PACKAGE / "engine/__init__.py"
    folders = plugins.Folders(root=tmp_path, methods=tmp_path, models=tmp_path)
    former = former_id(file, package)
    entry = numerics._short(fingerprint.of_text(f"{former} mine convolutional"))
    then = Identity(numerics={"method mine": former, "model mine": entry})
    model = numerics.of_registered("mine", folders)
    now = Identity(numerics={"method mine": former_id(file), "model mine": model})
    assert id_of(file) == former_id(file) != former and model != entry
    assert differences(then, now) == []
    code = numerics.of_partition((file,))
    for ids, same in ((code.replace(id_of(file), former), True), (code.split()[0], False)):
        assert (numerics.differing({"code": ids}, {"code": code}) == []) == same
    other = Identity(numerics=dict(now.numerics) | {"method mine": id_of(tmp_path / "edited.py")})
    assert [each.key for each in differences(then, other)] == ["method mine"]
    assert [each.key for each in differences(other, now)] == ["method mine"]


def test_what_a_process_has_loaded_is_what_it_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numerics.refuse_changed_code(run_spec())
    path = str(fingerprint.PACKAGE / "engine/optim.py")
    checksum, size = fedrepro.CODE_FILES[path]
    monkeypatch.setitem(fedrepro.CODE_FILES, path, (checksum ^ 1, size))
    with refused(file="engine/optim.py", names="changed"):
        numerics.refuse_changed_code(run_spec())
    monkeypatch.undo()
    monkeypatch.delitem(fedrepro.CODE_FILES, path)  # a file that came later
    with refused(file="engine/optim.py", names="changed"):
        numerics.refuse_changed_code(run_spec())


CHANGED = """
import os, sys
import fedrepro
from pathlib import Path
from fedrepro.provenance.numerics import changed_since_the_start
file = Path(fedrepro.__file__)
def told(change):
    change()
    return changed_since_the_start()
def relinked():
    os.link(file, f"{file}.linked")
    os.replace(f"{file}.linked", file)
def copied():
    os.replace(Path(f"{file}.copy").write_bytes(file.read_bytes()) and f"{file}.copy", file)
content, status = file.read_bytes(), file.stat()
assert not told(lambda: os.chmod(file, 0o600))
assert not told(relinked)
assert not told(copied)
assert not told(lambda: os.utime(file, (1, 1)))
assert not told(lambda: os.symlink("nowhere", file.with_name(".#lock.py")))
def edited():
    file.write_bytes(content.replace(b"repro", b"REPRO", 1))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
assert told(edited) == str(file)
assert not told(lambda: file.write_bytes(content))
assert told(lambda: file.with_name("new.py").touch())
"""


def test_bytes_tell_whether_code_has_changed_not_times(tmp_path: Path) -> None:
    """Backups, chmod -R and package managers change times of files that a notebook has loaded."""
    shutil.copytree(fingerprint.PACKAGE, tmp_path / "fedrepro")
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", CHANGED], env=environment, check=True)


def test_the_file_of_ids_is_small_and_sorted() -> None:
    text = numerics.FILE.read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"


def test_a_finished_run_of_the_same_ids_is_not_made_again(tmp_path: Path) -> None:
    played: list[int] = []

    def carry_out(code: str, ids: dict[str, str]) -> int:
        played.clear()
        runner.run(
            run_spec(rounds=2),
            dataset(),
            partition(),
            tmp_path / "run",
            code,
            lambda progress: played.append(progress.round),
            numerics=ids,
        )
        return len(played)

    assert carry_out("as written", {"core": "1"}) == 2
    assert carry_out("written otherwise", {"core": "1"}) == 0
    assert carry_out("written otherwise", {"core": "2"}) == 2
    manifest = json.loads((tmp_path / "run/manifest.json").read_text(encoding="utf-8"))
    assert (manifest["code"], manifest["numerics"]) == ("written otherwise", {"core": "2"})
    assert carry_out("as written", {}) == 2  # without ids the code is the identity


def test_a_plugin_that_was_edited_in_between_signs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    text = (
        "from dataclasses import dataclass\nfrom fedrepro.engine.method import Method\n"
        "@dataclass(frozen=True)\nclass Mine(Method):\n    pass\n"
    )
    file.write_text(text, encoding="utf-8")
    spec = run_spec("mine", plugins=plugins.Folders(methods=tmp_path))
    numerics.refuse_changed_code(spec)  # nothing is imported yet
    registry.compose("mine", folders=spec.plugins)
    numerics.refuse_changed_code(spec)
    file.write_text(f"{text}# edited\n", encoding="utf-8")
    with refused(names=("mine.py", "changed")):
        numerics.refuse_changed_code(spec)
    numerics.refuse_changed_code(run_spec())  # which has nothing to do with it


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("", False),
        ("nn.init.xavier_uniform_(net[0].weight)", True),
        ("net[0].bias.data.fill_(0.1)", True),
        ("net.load_state_dict({})", True),
        ("load_file(shape)", True),
        ("net.extra = dict(weights=1)", True),
        ("net.keeps_weights = nn.init.zeros_(net[0].bias) is not None", False),  # they always were
    ],
)
def test_a_plugin_model_whose_weights_are_kept_now_is_another_model(
    tmp_path: Path, line: str, kept: bool
) -> None:
    """Its runs from before had weights that the seed drew."""
    file = tmp_path / "mine.py"
    text = (
        f"from torch import nn\ndef mine(shape, outputs):\n    net = nn.Sequential()\n    {line}\n"
    )
    file.write_text(f"{text}    return net\n", encoding="utf-8")
    assert numerics._sets_weights(file) == kept
    folders = plugins.Folders(root=tmp_path, models=tmp_path)
    own = numerics._of_plugin(file)
    as_before = numerics._short(fingerprint.of_text(f"{own} mine convolutional"))
    assert (numerics.of_registered("mine", folders) != as_before) == kept
