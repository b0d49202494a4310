"""Numerics ids: code that gives the same bits is the same code."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedrepro
from fedrepro.methods import registry
from fedrepro.provenance import fingerprint, numerics
from fedrepro.run import runner
from fedrepro.support import plugins
from fedrepro.support.errors import UserError
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


def test_what_a_process_has_loaded_is_what_it_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numerics.refuse_changed_code(run_spec())
    path = str(fingerprint.PACKAGE / "engine/optim.py")
    checksum, size = fedrepro.CODE_FILES[path]
    monkeypatch.setitem(fedrepro.CODE_FILES, path, (checksum ^ 1, size))
    with pytest.raises(UserError, match=r"optim\.py: changed after this process started"):
        numerics.refuse_changed_code(run_spec())
    monkeypatch.undo()
    monkeypatch.delitem(fedrepro.CODE_FILES, path)  # a file that came later
    with pytest.raises(UserError, match=r"optim\.py: changed after"):
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
    with pytest.raises(UserError, match=r"mine\.py: changed after this process started"):
        numerics.refuse_changed_code(spec)
    numerics.refuse_changed_code(run_spec())  # which has nothing to do with it


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("", False),
        ("nn.init.xavier_uniform_(net[0].weight)", True),
        ("net[0].bias.data.fill_(0.1)", True),
        ("net.load_state_dict({})", True),
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
