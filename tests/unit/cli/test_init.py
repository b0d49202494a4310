"""What `fedrepro init` copies."""

import ast
import errno
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from fedrepro.cli import init
from fedrepro.cli.main import main
from fedrepro.config.experiment import shipped
from fedrepro.report.papers.paper_files import listed_in
from fedrepro.support.locks import is_locked
from support.places import ROOT
from support.refusals import refused


def test_a_workbench_begins_without_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the printed numbers of chosen papers, but no reference result as if it were its own."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "mine", "--with", "fedevg", "ima", "fedevg"]) == 0
    papers = tmp_path / "mine/reports/papers"
    assert {path.name for path in papers.iterdir()} == {"fedevg", "ima", "systems.yaml"}
    listed = (papers / "systems.yaml").read_text(encoding="utf-8")
    assert listed.startswith("# folders") and listed.endswith("\n- fedevg\n- ima\n")
    theirs = {
        path.relative_to(ROOT / "reports/papers")
        for system in ("fedevg", "ima")
        for path in (ROOT / "reports/papers" / system).rglob("*")
        if path.is_file() and "reference" not in path.parts
    }
    assert {path.relative_to(papers) for path in papers.rglob("*/*") if path.is_file()} == theirs
    assert not [*tmp_path.rglob("reference"), *tmp_path.rglob("__pycache__")]
    for profile in ("default", "slurm", "slurm-accounting"):
        ours = (ROOT / f"workflow/profiles/{profile}/profile.yaml").read_bytes()
        assert (tmp_path / f"mine/profiles/{profile}/profile.yaml").read_bytes() == ours
    assert main(["--root", "mine", "verify"]) == 0  # no reference result is missed
    assert main(["init", "mine"]) == 2
    assert "FOLDER: 'mine'" in capsys.readouterr().err


def test_a_published_setting_is_used_after_the_command_that_the_error_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "mine")]) == 0
    monkeypatch.chdir(tmp_path / "mine")
    file = Path("config/experiments/mine.yaml")
    own = file.read_text(encoding="utf-8")
    theirs = own.replace("Even, setting: even", "Even, setting: ima/fmnist-shards2-demo")
    capsys.readouterr()
    for text, key in (
        (theirs, "tables.table_1.rows.Even.setting: 'ima/fmnist-shards2-demo'"),
        (own.replace("extends: even", "extends: ima/cifar10"), "extends: 'ima/cifar10'"),
    ):
        file.write_text(text, encoding="utf-8")
        assert main(["settings"]) == 2
        line = capsys.readouterr().err
        assert key in line
        assert "; `fedrepro init --with ima` adds ima to this workbench" in line
    assert "`fedrepro settings ima/cifar10` prints it" in line
    file.write_text(theirs, encoding="utf-8")
    Path("reports/papers/ima").mkdir()
    Path("reports/papers/ima/cells.csv").write_text("mine", encoding="utf-8")
    assert main(["init", "--with", "ima"]) == 0
    experiment, compact = "config/experiments/ima.yaml", "config/compact/ima.yaml"
    theirs_too = [path for path in (ROOT / "reports/papers/ima").rglob("*") if path.is_file()]
    count = len([path for path in theirs_too if "reference" not in path.parts]) - 1  # but for mine
    line = f"ima: added {compact}, {experiment}, {count} files in reports/papers\n"
    assert capsys.readouterr().out == line
    assert main(["run", "ima/fmnist-shards2-demo", "fedavgg", "--seed", "1"]) == 2
    assert "part: 'fedavgg'" in capsys.readouterr().err  # it gets as far as the method
    # What was there is as it was.
    assert file.read_text(encoding="utf-8") == theirs
    assert Path("reports/papers/ima/cells.csv").read_text(encoding="utf-8") == "mine"
    Path(experiment).write_text("mine", encoding="utf-8")
    assert main(["init", "--with", "ima", "fedgo"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "ima: all of it is here, nothing was added"
    assert second.startswith("fedgo: added config/compact/fedgo.yaml")
    assert Path(experiment).read_text(encoding="utf-8") == "mine"
    listed = Path("reports/papers/systems.yaml").read_text(encoding="utf-8")
    assert listed.endswith("\n- ima\n- fedgo\n")
    order = Path("reports/papers/systems.yaml")
    before = "# mine\n- ima_of_mine\n- fedgo  # first\n"
    order.write_text(before, encoding="utf-8")
    assert main(["init", "--with", "ima"]) == 0
    assert order.read_text(encoding="utf-8") == f"{before}- ima\n"
    order.write_text("[fedgo]\n", encoding="utf-8")
    assert main(["init", "--with", "ima"]) == 2
    assert "systems.yaml: expected a line for each system" in capsys.readouterr().err
    assert order.read_text(encoding="utf-8") == "[fedgo]\n"


def test_a_new_paper_has_a_name_that_nothing_has(tmp_path: Path) -> None:
    """Neither a published paper nor an experiment, its small runs or printed numbers here."""
    for name in ("my_paper", "p2", "ima_of_mine"):
        init._check_free(tmp_path, name, {"ima"})
    for name in ("ima", "9x", "_x", "My", "my-paper", "a b", ""):
        with refused(key="--paper", value=name):
            init._check_free(tmp_path, name, {"ima"})
    for taken in ("config/experiments/a.yaml", "config/compact/b.yaml", "reports/papers/c/x.csv"):
        (tmp_path / taken).parent.mkdir(parents=True)
        (tmp_path / taken).touch()
    for name in "abc":
        with refused(key="--paper", value=name):
            init._check_free(tmp_path, name, {"ima"})
    init._check_free(tmp_path, "d", {"ima"})


def test_a_new_paper_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["init", str(tmp_path / "bench")])
    there = sorted((tmp_path / "bench").rglob("*.yaml"))
    write, calls = Path.write_text, iter(range(100))

    def full(path: Path, *args: Any, **named: Any) -> int:
        if next(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, *args, **named)

    monkeypatch.setattr(Path, "write_text", full)
    command = ["--root", str(tmp_path / "bench"), "init", "--paper", "my_paper"]
    assert main(command) == 2
    monkeypatch.undo()
    assert sorted((tmp_path / "bench").rglob("*.yaml")) == there
    papers = tmp_path / "bench/reports/papers/systems.yaml"
    before = papers.read_bytes()
    papers.write_text("a: [")
    assert main(command) == 2
    papers.write_bytes(before)
    assert sorted((tmp_path / "bench").rglob("*.yaml")) == there
    assert main(command) == 0


@pytest.mark.parametrize("ours", [("--paper", "mine_too"), ("--with", "fedevg")])
@pytest.mark.parametrize("theirs", [("--paper", "mine_too"), ("--with", "fedgo")])
def test_two_at_once_list_both_papers_and_write_none_twice(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ours: tuple[str, str],
    theirs: tuple[str, str],
) -> None:
    """The other one is done after we have looked and before we write; or it waits for our lock."""
    monkeypatch.chdir(tmp_path)
    main(["init", "bench"])
    monkeypatch.chdir("bench")
    lock, parsed, held = init.exclusive_lock, init.parsed, []

    def after_the_other(folder: Path) -> Any:
        monkeypatch.setattr(init, "exclusive_lock", lock)
        assert main(["init", *theirs]) == 0
        return lock(folder)

    def as_held(*words: Any) -> Any:
        held.append(is_locked(init.PAPERS))
        return parsed(*words)

    monkeypatch.setattr(init, "exclusive_lock", after_the_other)
    monkeypatch.setattr(init, "parsed", as_held)
    assert main(["init", *ours]) == (2 if ours == theirs else 0)
    assert listed_in(Path(), init.ORDER) == list(dict.fromkeys([theirs[1], ours[1]]))
    assert held and all(held) and not is_locked(init.PAPERS)


def test_verify_says_which_papers_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["init", "bench"])
    monkeypatch.chdir("bench")
    main(["init", "--paper", "listed"])
    before = init.ORDER.read_text(encoding="utf-8")
    main(["init", "--paper", "dropped"])
    for text, told in ((None, False), (before, True)):
        if text is not None:
            init.ORDER.write_text(text, encoding="utf-8")
        capsys.readouterr()
        assert main(["verify"]) == 0
        lines = [line for line in capsys.readouterr().err.splitlines() if "systems.yaml" in line]
        assert ["dropped" in line and ": listed" not in line for line in lines] == [True] * told


def test_without_a_folder_it_needs_a_workbench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["init"], ["init", "--with", "ima"]):
        assert main(words) == 2
        assert "FOLDER: missing:" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("copied", "said"),
    [
        ([], "`fedrepro init --with SYSTEM`"),
        (
            ["--with", "fedevg"],
            "results at scale paper that come with fedrepro are only in a clone",
        ),
    ],
)
def test_claims_say_what_a_workbench_lacks(
    copied: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "mine"), *copied]) == 0
    assert main(["--root", str(tmp_path / "mine"), "claims"]) == 0
    listed = capsys.readouterr()
    assert said in listed.err
    assert ("\nfedevg-" in listed.out) == bool(copied)


@pytest.mark.parametrize(
    "command",
    ["claims", "coverage", "coverage --figures", "verify", "methods", "models", "datasets",
     "settings", "clean", "estimate --scale compact"],
)  # fmt: skip
def test_every_list_of_a_new_workbench_is_printed_on_a_terminal(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it has no line, without a traceback and without a phrase around nothing."""
    assert main(["init", str(tmp_path / "mine")]) == 0
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["--root", str(tmp_path / "mine"), *command.split()]) == 0
    shown = "".join(capsys.readouterr())
    assert shown.strip() and "Traceback" not in shown
    assert not re.search(r", ,|: *[.,]|\b0\.0 are\b", shown)


def test_nothing_in_a_workbench_advises_make(tmp_path: Path) -> None:
    """Neither files that init writes, messages, nor pages, but those of a clone."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = "|".join(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    advice = re.compile(rf"\bmake ({targets})\b")
    of_clones = re.compile(r"\{% if is_clone %\}.*?\{% (else|endif) %\}", re.DOTALL)
    assert main(["init", str(tmp_path / "bench"), "--with", *shipped(), "--paper", "new"]) == 0
    texts = {}
    for path in (tmp_path / "bench").rglob("*"):
        if path.suffix not in TEXTS or not path.is_file():
            continue
        texts[path] = re.sub(r".* in a clone.*", "", path.read_text(encoding="utf-8"))
    for path in (ROOT / "reports/templates").rglob("*"):
        if path.is_file():
            texts[path] = of_clones.sub("", path.read_text(encoding="utf-8"))
    for path in [*(ROOT / "src").rglob("*.yaml"), *(ROOT / "workflow/rules").rglob("*.smk")]:
        texts[path] = path.read_text(encoding="utf-8")
    for path in (ROOT / "src").rglob("*.py"):
        if path.parts[-2:] != ("pages", "claims.py"):  # whose template asks for a clone
            texts[path] = "\n".join(messages_of(path))
    assert len(texts) > 400
    assert [path for path, text in texts.items() if advice.search(text)] == []


TEXTS = {".yaml", ".md", ".csv", ".smk", ""}


def messages_of(path: Path) -> list[str]:
    """The strings of a module, without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    said = [
        node.value
        for statement in ast.walk(tree)
        for node in ast.iter_child_nodes(statement)
        if isinstance(node, ast.Constant) and not isinstance(statement, ast.Expr)
    ]
    return [text for text in said if isinstance(text, str)]


@pytest.mark.parametrize("mask", [0o002, 0o027])
def test_a_workbench_obeys_the_umask(tmp_path: Path, mask: int) -> None:
    """Whatever the modes of the files that it is copied from: a group may work in it together."""
    before = os.umask(mask)
    try:
        assert main(["init", str(tmp_path / "bench")]) == 0
    finally:
        os.umask(before)
    for path in (tmp_path / "bench").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o777 if path.is_dir() else 0o666) & ~mask
