"""What the command prints, whatever is in it."""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from fedrepro.cli import verify
from fedrepro.cli.main import main
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import CONFIG
from fedrepro.run.results import LOGS, read_run
from fedrepro.support.errors import UserError
from fedrepro.support.printing import CONTROL

OUTSIDE = "\x1b]0;title\x07 and \x1b[2J\r\x9b31m"
VERIFY = ("--log", "log", "verify")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def controls(text: str) -> set[str]:
    return {each for each in text if ord(each) in CONTROL}


def test_control_characters_are_written_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def handle(arguments: argparse.Namespace) -> NoReturn:
        print(f"found {OUTSIDE}")
        print(f"warning: {OUTSIDE}", file=sys.stderr)
        raise UserError(f"proxy: {OUTSIDE}")

    monkeypatch.setattr(verify, "handle", handle)
    assert main(VERIFY) == 2
    out, err = capsys.readouterr()
    log = Path("log").read_text(encoding="utf-8")
    assert not controls(out + err + log)
    assert log == err
    assert out == "found \\x1b]0;title\\x07 and \\x1b[2J\\x0d\\x9b31m\n"
    assert "fedrepro: proxy: \\x1b]0;title" in err


def test_tables_and_progress_bars_keep_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def handle(arguments: argparse.Namespace) -> None:
        from rich.console import Console

        Console(force_terminal=True, color_system="standard").print("[red]meant[/red]")

    monkeypatch.setattr(verify, "handle", handle)
    assert main(VERIFY) == 0
    assert "\x1b[31mmeant" in capsys.readouterr().out


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("std::bad_alloc"),
        RuntimeError("Traceback ...\nRuntimeError: DefaultCPUAllocator: can't allocate memory: x"),
        OSError(12, "Cannot allocate memory"),
        ImportError("libtorch.so: failed to map segment from shared object"),
    ],
)
def test_memory_that_runs_out_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def handle(arguments: argparse.Namespace) -> NoReturn:
        raise error

    monkeypatch.setattr(verify, "handle", handle)
    assert main((*VERIFY, "some")) == 2
    (line,) = Path("log").read_text(encoding="utf-8").splitlines()
    assert line.startswith("fedrepro: verify some: memory ran out (")
    assert "`resources: {mem_mb: ...}`" in line and "`threads`" in line
    assert line in capsys.readouterr().err


def test_other_errors_are_not_called_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(arguments: argparse.Namespace) -> NoReturn:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(verify, "handle", handle)
    assert main(VERIFY) == 1
    assert "internal error: RuntimeError: on purpose" in Path("log").read_text(encoding="utf-8")


def test_with_a_root_a_traceback_goes_to_the_log_beside_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log's path is relative to where the command is called, unlike all others."""

    def handle(arguments: argparse.Namespace) -> NoReturn:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(verify, "handle", handle)
    (Path("bench") / CONFIG).parent.mkdir(parents=True)
    (Path("bench") / CONFIG).touch()
    assert main(("--log", "logs/x", "--root", "bench", "verify")) == 1
    assert "Traceback" in Path("logs/x").read_text(encoding="utf-8")
    assert not Path("bench/logs").exists()


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("os.abort()", "failed: it ended by a signal, 'Aborted', perhaps because memory"),
        ("os.kill(os.getpid(), 9)", "failed: it ended without a word, perhaps because memory ran"),
    ],
)
def test_a_process_that_is_ended_says_so_or_its_hole_does(end: str, why: str) -> None:
    """As C++ and the kernel do where memory runs out."""
    run = RunKey("ima/tiny", "fedavg", 1)
    log = LOGS / run.setting / run.method / "seed1.log"
    code = f"""
import os
from fedrepro.cli import main, verify
verify.handle = lambda arguments: {end}
main.main(["--log", {str(log)!r}, "verify"])
"""
    called = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert called.returncode < 0
    record = read_run(Path(), run)
    assert (record.state, record.why[: len(why)]) == ("failed", why)
