"""Fingerprints follow what code does, not how it is written."""

import ast
import hashlib
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.config.run_spec import Execution, RunSpec
from fedrepro.methods import facts
from fedrepro.models import registry as models
from fedrepro.provenance import fingerprint, numerics
from fedrepro.provenance.syntax import Syntax, read_syntax, syntax_of
from fedrepro.support import plugins
from fedrepro.support.plugins import content_of
from fedrepro.support.typed_yaml import Typed, later
from support.places import ROOT
from support.tiny_run import run_spec


def test_code_that_stands_for_older_code_is_that_of_today() -> None:
    """Else an edited file that plug-ins import makes all tables of a measure plug-in again."""
    today = {syntax_of(file).digest for file in fingerprint.PACKAGE.rglob("*.py")}
    assert {*fingerprint.SAME} <= today


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with three modules in place of ours."""
    root = tmp_path / "fedrepro"
    (root / "part").mkdir(parents=True)
    (root / "__init__.py").write_text('"""Top."""\n__version__ = "1"\n')
    (root / "part/__init__.py").write_text("")
    (root / "support").mkdir()
    (root / "support/__init__.py").write_text("")
    (root / "support/errors.py").write_text("import fedrepro.part.hidden\n")
    (root / "part/hidden.py").write_text("x = 1\n")
    (root / "part/leaf.py").write_text("def leaf():\n    return 1\n")
    (root / "part/sister.py").write_text(
        "from . import leaf\nfrom .. import far\nimport fedrepro.support.errors\n"
    )
    (root / "far.py").write_text("import math\n")
    (root / "apart.py").write_text("x = 1\n")
    (root / "start.py").write_text(
        '"""Doc."""\n\ndef run(a, b):\n    """Doc."""\n    from fedrepro.part import sister\n'
        "    return a + b\n"
    )
    monkeypatch.setattr(fingerprint, "PACKAGE", root)
    return root


def of_start() -> str:
    """The fingerprint of the module `start` and of what it imports."""
    start = fingerprint.module_path("fedrepro.start")
    return fingerprint.of_closure([start], fingerprint.HANDLING)


def changed(root: Path, file: str, text: str) -> bool:
    """Whether the fingerprint of the module `start` changes when a file gets a new text."""

    def now() -> str:
        for cached in (content_of, syntax_of, fingerprint._imported):
            cached.cache_clear()
        return of_start()

    before = now()
    (root / file).write_text(text)
    return now() != before


def test_closure_follows_absolute_relative_and_inner_imports(package: Path) -> None:
    def names(outside: tuple[str, ...]) -> set[str]:
        found = fingerprint.closure([package / "start.py"], outside)
        return {path.relative_to(package).with_suffix("").as_posix() for path in found}

    inside = {"start", "part/sister", "part/leaf", "far"}
    assert names(()) == inside | {"support/errors", "part/hidden"}
    assert names(("support",)) == inside  # nor what only they import
    assert names(("support/err", "far")) == names(()) - {"far"}


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\ndef run(a,b):\n  from fedrepro.part import sister\n\n  return (a+b)  # sum\n",
        '"""Other words."""\ndef run(\n    a,\n    b,\n):\n    """Other."""\n'
        '    from fedrepro.part import sister\n    "a remark"\n    return a + b\n',
    ],
)
def test_comments_formatting_and_docstrings_change_nothing(package: Path, text: str) -> None:
    assert not changed(package, "start.py", text)


def test_code_changes_count_wherever_they_are_imported_from(package: Path) -> None:
    assert changed(package, "part/leaf.py", "def leaf():\n    return 2\n")
    assert not changed(package, "apart.py", "x = 2\n")
    assert not changed(package, "__init__.py", '__version__ = "2"\n')


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("import mylib.near", {"near"}),
        ("def late():\n    from mylib import near", {"near"}),
        ("from mylib.inner import same", {"inner/same"}),
        # It has: from .leaf import x; from .. import up; from ..beside.same import x
        ("from mylib.inner.deep import x", {"inner/deep", "inner/leaf", "up", "beside/same"}),
    ],
)
def test_a_plug_in_s_helpers_count_at_any_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, expected: set[str]
) -> None:
    """However their imports name them, and no other file of the same name."""
    deep = "from .leaf import x\nfrom .. import up\nfrom ..beside.same import x\n"
    files = dict.fromkeys(("near", "same", "leaf", "up", "inner/same", "beside/same"), "x = 1\n")
    for name, text in {**files, "inner/leaf": "x = 1\n", "inner/deep": deep}.items():
        for path in (tmp_path / f"mylib/{name}.py", tmp_path / f"{name}.py"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    own = tmp_path / "methods/own.py"
    own.parent.mkdir()
    own.write_text(f"{statement}\n")
    monkeypatch.chdir(tmp_path)
    helpers = fingerprint.closure([own]) - {own}
    assert helpers == {tmp_path / f"mylib/{name}.py" for name in expected}


@pytest.mark.parametrize("link", ["methods/own.py", "methods"])
def test_what_is_beside_a_plug_in_s_file_counts_where_the_workbench_has_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    """Once, if the folder is the link: a helper of another text was taken for the same."""
    bench, lib = tmp_path / "bench", tmp_path / "lib"
    lib.mkdir()
    (lib / "own.py").write_text("from helper import x\ntable = 'table.txt'\n")
    (lib / "helper.py").write_text("x = 1\n")
    (lib / "table.txt").write_text("1")
    (bench / link).parent.mkdir(parents=True)
    (bench / link).symlink_to(lib / "own.py" if link.endswith(".py") else lib)
    monkeypatch.chdir(bench)
    own = bench / "methods/own.py"
    assert [each.name for each in sorted(fingerprint.closure([own]) - {own})] == ["helper.py"]
    assert [each.name for each in fingerprint.files_read_by([own])] == ["table.txt"]


def test_two_files_of_one_name_are_told_apart(package: Path) -> None:
    """What one does and what the other does may not be exchanged unseen."""
    (package / "far.py").write_text("import fedrepro.support.leaf\n")
    here, there = package / "part/leaf.py", package / "support/leaf.py"
    there.write_text("x = 1\n")
    before = of_start()
    one, other = here.read_text(), there.read_text()
    here.write_text(other)
    assert changed(package, "support/leaf.py", one)
    assert of_start() != before


def test_what_an_error_says_changes_nothing_but_where_it_is_raised_does(package: Path) -> None:
    text = "def leaf(x):\n    if x > 1:\n        raise ValueError({})\n    return 1\n"
    assert changed(package, "part/leaf.py", text.format("'one'"))
    assert not changed(package, "part/leaf.py", text.format("f'another: {x}'"))
    assert changed(package, "part/leaf.py", text.format("").replace("ValueError", "KeyError"))
    assert changed(package, "part/leaf.py", text.format("").replace("x > 1", "x > 2"))
    assert not changed(package, "support/errors.py", "import fedrepro.part.hidden\nx = 1\n")


def test_init_files_hold_nothing_that_could_count() -> None:
    # Those of the package and of methods lend out the API, which no run imports.
    lending = {fingerprint.PACKAGE, fingerprint.PACKAGE / "methods"}
    for path in fingerprint.PACKAGE.rglob("__init__.py"):
        names = set(fingerprint._imported_names(path))
        ours = {name for name in names if name.startswith("fedrepro")}
        assert all(name == "fedrepro" or f"{name}.".startswith("fedrepro.api.") for name in ours)
        statements = ast.parse(path.read_text(encoding="utf-8")).body
        others = [each for each in statements if not isinstance(each, ast.Expr)]
        assert not others or path.parent in lending


def files(composition: str = "fedavg", model: str = "logistic") -> set[str]:
    """The modules of a run's code."""
    spec = run_spec(composition, model=model)
    found = fingerprint.closure(fingerprint.code_of_spec(spec), fingerprint.OUTSIDE_A_RUN)
    return {path.relative_to(fingerprint.PACKAGE).with_suffix("").as_posix() for path in found}


def test_a_run_depends_on_its_own_methods_and_server_optimizer_only() -> None:
    assert {"methods/ima", "methods/fedprox"} <= files("ima+fedprox")
    adam = files("fedavg+fedadam")
    assert adam - files("fedavg") == {"methods/server/fedadam", "methods/server/adaptive"}
    assert "models/superfed" in files(model="superfed_vgg9") - files(model="twonn")


def test_what_a_paper_changes_in_a_run_is_code_of_the_runs_that_ask_for_it() -> None:
    plain = run_spec("fedgo")
    drawn = run_spec("fedgo", cohorts={"stream": "numpy_legacy", "seed": 7})
    lying = run_spec("fedgo", byzantine=2)
    asked = [fingerprint.code_of_setting(each.setting) for each in (plain, drawn, lying)]
    names = [[path.name for path in each] for each in asked]
    assert names == [[], ["cohorts_numpy_legacy.py"], ["given_byzantine.py"]]
    both = run_spec("fedgo", cohorts={"stream": "numpy_legacy", "seed": 7}, byzantine=2)
    every = (plain, drawn, lying, both)
    assert len({fingerprint.of_code(each) for each in every}) == 4
    assert {*names[1], *names[2]} <= {path.name for path in fingerprint.code_of_spec(both)}
    parts = {f"paper {path.parent.name} {path.stem}" for each in asked for path in each}
    assert numerics.of_run(both).keys() - numerics.of_run(plain).keys() == parts


OWN = {
    "methods/mine.py": "from methods.deep import helper\n"
    "from fedrepro.methods.fedavg import FedAvg\nclass Mine(FedAvg):\n    table = 'table.txt'\n",
    "methods/deep/helper.py": "half = 0.5\n",
    "methods/table.txt": "1",
    "measures/own.py": "from fedrepro.measures.base import Measure\nclass Own(Measure):\n"
    "    words, higher_is_better, per = 'own', True, 'client'\n"
    "    def of_outputs(self, outputs, targets):\n        return 1.0\n",
    "losses/apart.py": "def apart(outputs, targets):\n    return outputs.mean()\n",
    "models/net.py": "from torch import nn\ndef net(shape, outputs):\n    return nn.Linear(4, 3)\n",
}


def own_spec(root: Path, name: str = "") -> RunSpec:
    """A run with a plug-in of each kind, one file of which may have another text."""
    for file, text in OWN.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(f"{text}{'2' if file == name else ''}\n", encoding="utf-8")
    (root / "config").mkdir()
    (root / "config/config.yaml").write_text("plugins: { methods: methods }\n")
    kinds = {kind: root / kind for kind in ("methods", "models", "measures", "losses")}
    folders = plugins.Folders(root=root, **kinds)
    evaluate = {"clients": True, "measures": ["own"]}
    return run_spec("mine", model="net", loss="apart", evaluate=evaluate, plugins=folders)


def test_each_plug_in_s_file_counts_and_is_found_by_its_name(tmp_path: Path) -> None:
    spec = own_spec(tmp_path / "bench")
    files = fingerprint.files_of_code(spec)
    ours = {f"plugins/{name}" for name in OWN if name.endswith(".py")}
    assert {name for name in files if name.startswith("plugins/")} == ours
    assert "engine/round.py" in files and list(files) == sorted(files)
    for name, digest in files.items():
        place = fingerprint.file_of_code(name, spec.plugins)
        assert place is not None and syntax_of(place[0] / place[1]).digest == digest
    kinds = {f"plugins/{kind}" for kind in ("methods", "models", "measures", "losses")}
    assert fingerprint.checkouts_of(files, spec.plugins).keys() == {"fedrepro", *kinds}
    some = [name for name in files if not name.startswith("plugins/m")]
    assert fingerprint.checkouts_of(some, spec.plugins).keys() == {"fedrepro", "plugins/losses"}
    parts = {"core", "method mine", "model net", "measure own", "loss apart"}
    assert numerics.of_run(spec).keys() == parts


@pytest.mark.parametrize("name", OWN)
def test_each_plug_in_s_file_makes_another_run(tmp_path: Path, name: str) -> None:
    """Also one that code reads; for runs with ids and for those of before."""
    before, after = own_spec(tmp_path / "before"), own_spec(tmp_path / "after", name)
    assert fingerprint.of_code(before) != fingerprint.of_code(after)
    then, now = numerics.of_run(before), numerics.of_run(after)
    part = {"losses": "loss apart", "measures": "measure own", "models": "model net"}
    assert numerics.differing(then, now) == [part.get(name.partition("/")[0], "method mine")]


@pytest.mark.parametrize(
    "change", [{"channels_last": False}, {"function": "twocnn_earlier"}, {"family": "linear"}]
)
def test_a_model_s_entry_counts_beside_its_module(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, entry = "superfed_twocnn", models.MODELS["superfed_twocnn"]
    spec = run_spec(model=name)
    before = fingerprint.of_code(spec), numerics.of_registered(name)
    other = {**models.MODELS, name: entry._replace(**change)}
    monkeypatch.setattr(models, "MODELS", other)
    after = fingerprint.of_code(spec), numerics.of_registered(name)
    assert before[0] != after[0] and before[1] != after[1]


def test_a_run_is_what_can_change_its_numbers() -> None:
    found = files("superfed_mm")
    assert {
        "engine/round", "engine/descent", "engine/evaluate", "data/tensors/samples",
        "data/tensors/noise", "support/rng", "run/assembly", "run/scoring", "run/state",
    } <= found  # fmt: skip
    rooms = {"engine", "methods", "models", "data/tensors", "support/rng"}
    inside = {name for name in found if any(name.startswith(room) for room in rooms)}
    assert found - inside == {
        "run/assembly", "run/devices", "run/scoring", "run/state",
        "measures/over_clients", "run/networks", "check/own_functions",
        "check/own_models", "check/traces",
        "run/schedules", "support/copies",
        "data/readers/arrays", "data/readers/packing",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("file", "redone"),
    [
        ("engine/descent", {"fedavg", "ima+fedprox", "fedavg+fedadam", "fedavg twonn"}),
        ("run/scoring", {"fedavg", "ima+fedprox", "fedavg+fedadam", "fedavg twonn"}),
        ("support/rng", {"fedavg", "ima+fedprox", "fedavg+fedadam", "fedavg twonn"}),
        ("models/mlp", {"fedavg twonn"}),
        ("methods/fedprox", {"ima+fedprox"}),
        ("methods/server/fedadam", {"fedavg+fedadam"}),
        ("methods/server/fedyogi", set()),
        ("support/files", set()),
        ("run/manifest", set()),
        ("run/runner", set()),
        ("run/checkpoint", set()),
        ("config/settings", set()),
        ("measures/built_in", set()),
        ("data/partition/assigning", set()),
        ("data/prepare", set()),
        ("methods/registry", set()),
    ],
)
def test_runs_that_a_changed_line_redoes(
    file: str, redone: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_a_line(path: Path) -> Syntax:
        if path == fingerprint.PACKAGE / f"{file}.py":
            return read_syntax(path.read_bytes() + b"\na_line = 1\n", path)
        return syntax_of(path)

    def codes() -> set[tuple[str, str]]:
        for cached in (fingerprint._imported, fingerprint._of_run):
            cached.cache_clear()
        runs = {
            name: run_spec(name, model="superfed_twocnn")
            for name in ("fedavg", "ima+fedprox", "fedavg+fedadam")
        } | {"fedavg twonn": run_spec(model="twonn")}
        return {(name, fingerprint.of_code(spec)) for name, spec in runs.items()}

    before = codes()
    monkeypatch.setattr(fingerprint, "syntax_of", with_a_line)
    try:
        assert {name for name, _ in codes() - before} == redone
    finally:
        monkeypatch.undo()
        codes()  # what is cached must be of the files as they are


def test_modules_that_never_count_are_there() -> None:
    for name in (*fingerprint.OUTSIDE_A_RUN, *fingerprint.OUTSIDE_A_PAGE):
        path = fingerprint.PACKAGE / name
        assert path.is_dir() or path.with_suffix(".py").is_file(), name


def test_execution_is_no_part_of_what_a_run_is() -> None:
    one = run_spec()
    assert one.digest == replace(one, execution=Execution(device="cuda", checkpoint_every=3)).digest
    assert one.digest != replace(one, seed=2).digest
    known = {"executor", "device", "threads", "checkpoint_every"}
    assert known == {field.name for field in fields(Execution)}
    assert not known & one.description().keys()


def test_keys_that_came_later_are_left_out_at_their_default() -> None:
    """At any depth of a setting; so that runs from before there was such a key stay the same."""

    class Part(Typed):
        lr: float = 0.1
        name: str = later("sgd")

    class Whole(Typed):
        part: Part = Part()
        share: float = later(0.0)

    assert Whole().model_dump(mode="json") == {"part": {"lr": 0.1}}
    given = {"part": {"lr": 0.1, "name": "adam"}, "share": 0.5}
    assert Whole.model_validate(given).model_dump(mode="json") == given


def test_reading_the_configuration_and_fingerprinting_need_no_torch(tmp_path: Path) -> None:
    """Once what methods say was written down, as each call of Snakemake sees to."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    facts.write(load(tmp_path).plugins)
    program = (
        "import sys\n"
        "from fedrepro.config.loading import load\n"
        "from fedrepro.provenance import fingerprint\n"
        "bench = load()\n"
        "run = bench.table('ima', 'table_1', 'paper').runs[0]\n"
        "fingerprint.of_code(bench.run_spec(run.setting, run.method, run.seed))\n"
        "assert not {'torch', 'pandas'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_files_are_hashed_without_the_place_of_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = []
    for place in ("one", "another/place"):
        folder = tmp_path / place / "templates"
        (folder / "of").mkdir(parents=True)
        (folder / "of/page.j2").write_text("page", encoding="utf-8")
        (tmp_path / place / "mine.py").write_text("1", encoding="utf-8")
        hashes.append(fingerprint.of_files([folder, tmp_path / place / "mine.py"]))
    assert hashes[0] == hashes[1]
    (folder / "of/page.j2").rename(folder / "page.j2")
    assert fingerprint.of_files([folder, tmp_path / place / "mine.py"]) != hashes[0]
    ours = fingerprint.PACKAGE / "report/pages/cost.py"  # of two in the package, each is itself
    digest = hashlib.sha256(ours.read_bytes()).hexdigest()
    assert fingerprint.of_files([ours]) == fingerprint.of_text(f"report/pages/cost.py {digest}")
    # Relative paths as they are: hashes that are recorded stay.
    monkeypatch.chdir(tmp_path)
    digest = hashlib.sha256(b"1").hexdigest()
    assert fingerprint.of_files([Path("one/mine.py")]) == fingerprint.of_text(
        f"one/mine.py {digest}"
    )
