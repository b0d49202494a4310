"""What the command prints, whatever is in it."""

import argparse
import errno
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import IO, Any, NoReturn

import pytest

from fedrepro.cli import main as command
from fedrepro.cli import verify
from fedrepro.cli.main import main
from fedrepro.config.targets import RunKey
from fedrepro.run.results import LOGS, read_run
from fedrepro.support import commands, plugins
from fedrepro.support.errors import Interrupted, UserError
from fedrepro.support.files import sha256_of
from fedrepro.support.packaged import CONFIG
from fedrepro.support.plugins import NONE
from fedrepro.support.printing import CONTROL
from fedrepro.support.terminal import let_go
from support.places import ROOT

OUTSIDE = "\x1b]0;title\x07 and \x1b[2J\r\x9b31m"
LONG = "x" * 300
VERIFY = ("--log", "x.log", "verify")


def help_of(*words: str) -> str:
    """What ``--help`` prints of a command."""
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit):
        command.parser().parse_args((*words, "--help"))
    return out.getvalue()


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
    log = Path("x.log").read_text(encoding="utf-8")
    assert not controls(out + err + log)
    assert log == err
    assert out == "found \\x1b]0;title\\x07 and \\x1b[2J\\x0d\\x9b31m\n"
    assert "fedrepro: proxy: \\x1b]0;title" in err


@pytest.mark.parametrize(("old", "new"), command.ALIASES.items())
def test_an_old_command_word_is_the_new_command(old: str, new: str) -> None:
    words = {"explain": ("ima/tiny", "fedavg", "--seed", "1"), "estimate": ("ima", "--json")}[new]
    one, other = (vars(command.parser().parse_args((word, *words))) for word in (old, new))
    assert one | {"command": new} == other
    assert f"\n    {old}" not in command.parser().format_help()


def test_examples_of_the_help_are_whole_lines_that_the_command_line_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    entries = {
        name: entry
        for content in commands.described()
        for name, entry in content["commands"].items()
    }
    entries |= {f"synth {name}": entry for name, entry in entries["synth"]["actions"].items()}
    with_examples = {name for name, entry in entries.items() if "xample" in entry.get("epilog", "")}
    assert len(with_examples) > 15
    for name in with_examples:
        shown = re.findall(r"^  (?:cd .* && )?fedrepro (.*)$", help_of(*name.split()), re.MULTILINE)
        assert len(shown) == entries[name]["epilog"].count("fedrepro ")
        for words in map(shlex.split, shown):
            assert " ".join(words).startswith(name)
            command.parser().parse_args(words)


def test_help_is_not_wrapped_within_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for content in commands.described():
        for name in content["commands"]:
            assert not re.search(r"\w-$", help_of(name), re.MULTILINE), name


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
        RuntimeError("can't start new thread"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        OSError(8, "Not enough memory resources are available"),
        RuntimeError("worker: MemoryError"),
    ],
)
def test_memory_that_runs_out_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def handle(arguments: argparse.Namespace) -> NoReturn:
        raise error

    monkeypatch.setattr(verify, "handle", handle)
    assert main((*VERIFY, "some")) == 2
    (line,) = Path("x.log").read_text(encoding="utf-8").splitlines()
    assert line.startswith("fedrepro: verify some: memory ran out (")
    assert "`resources: {mem_mb: ...}`" in line and "`threads`" in line
    assert line in capsys.readouterr().err


def test_other_errors_are_not_called_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(arguments: argparse.Namespace) -> NoReturn:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(verify, "handle", handle)
    assert main(VERIFY) == 1
    assert "internal error: RuntimeError: on purpose" in Path("x.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_command_ends_with_its_signal_s_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    """As a shell says it; its log is of this call alone."""

    def handle(arguments: argparse.Namespace) -> NoReturn:
        raise Interrupted("stopped", number)

    Path("x.log").write_text("of an earlier call\n", encoding="utf-8")
    monkeypatch.setattr(verify, "handle", handle)
    assert main(VERIFY) == 128 + number
    assert capsys.readouterr().err == Path("x.log").read_text(encoding="utf-8")
    assert len(Path("x.log").read_text(encoding="utf-8").splitlines()) == 1


@pytest.mark.parametrize(
    ("number", "status"), [(errno.ENOSPC, 0), (errno.EDQUOT, 0), (errno.EACCES, 2)]
)
def test_a_log_is_done_without_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    """On a full disk, and beyond a quota; not where it could never be written."""
    called: list[object] = []

    def refuse(*about: object, **named: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(verify, "handle", called.append)
    monkeypatch.setattr(command, "open", refuse, raising=False)
    assert main(VERIFY) == status
    assert len(called) == (status == 0)


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


@pytest.fixture
def unread() -> Iterator[dict[str, IO[str]]]:
    """Streams that fail in each way that a reader, a shell or a disk makes them fail."""
    reader, writer = os.pipe()
    os.close(reader)
    numbers = {"gone": writer} | {
        name: os.open(path, os.O_WRONLY)
        for name, path in {"full": "/dev/full", "closed": os.devnull}.items()
    }
    streams = {name: os.fdopen(number, "w") for name, number in numbers.items()}
    streams["closed"].close()
    yield streams
    for stream in streams.values():
        let_go(stream)  # else it fails when it is closed
        stream.close()


@pytest.mark.parametrize("out", ["gone", "full", "closed"])
@pytest.mark.parametrize("err", ["gone", "full", "closed"])
@pytest.mark.parametrize("made", [False, True])
def test_what_cannot_be_printed_ends_nothing(
    out: str, err: str, made: bool, unread: dict[str, IO[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is the command's, but a result that is lost on a full disk is not status 0."""
    done = []

    def handle(arguments: argparse.Namespace) -> int:
        print("x" * 10**5, flush=True)
        print("y" * 10**5, file=sys.stderr, flush=True)
        done.append(len(done))
        return len(done) - 1

    monkeypatch.setattr(verify, "handle", handle)
    described = commands.described()[0]["commands"]["verify"]
    monkeypatch.setitem(described, "writes", "results/some.json" if made else None)
    monkeypatch.setattr(sys, "stdout", unread[out])
    monkeypatch.setattr(sys, "stderr", unread[err])
    assert main(VERIFY) == (0 if made or out == "gone" else 2)
    assert main(VERIFY) == 1
    assert "y" * 10**5 in Path("x.log").read_text(encoding="utf-8")
    assert len(done) == 2


def test_a_log_on_a_full_disk_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def handle(arguments: argparse.Namespace) -> None:
        print("a remark", file=sys.stderr)

    monkeypatch.setattr(verify, "handle", handle)
    assert main(("--log", "/dev/full", "verify")) == 0
    assert capsys.readouterr().err == "a remark\n"


def test_a_help_that_is_not_printed_is_not_status_0(
    unread: dict[str, IO[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", unread["full"])
    assert main(("--version",)) == 2


def test_commands_of_the_workflow_are_done_without_their_remarks() -> None:
    """Else Snakemake would remove what they have made."""
    rules = "".join(path.read_text("utf-8") for path in (ROOT / "workflow").rglob("*.smk"))
    called = set(re.findall(r"fedrepro --log {log} (\w+)", rules))
    entries = {
        name: entry for each in commands.described() for name, entry in each["commands"].items()
    }
    assert called >= {"run", "quality", "regret"} and all(
        entries[name]["writes"] for name in called
    )


@pytest.mark.parametrize(
    ("redirected", "status"),
    [
        (">&- 2>&-", 0),
        ("<&- >&- 2>&-", 0),
        (">/dev/full 2>/dev/full", 2),
        ("2>&1 | true; exit ${PIPESTATUS[0]}", 0),
    ],
)
def test_the_status_stays_until_the_process_has_ended(redirected: str, status: int) -> None:
    """Python would fail at its exit; a closed descriptor would be that of the next file."""
    code = """
import sys
from fedrepro.cli import warm, verify
def handle(arguments):
    with open("file", "w") as file:
        print("in the file", file=file)
        print("result")
        print("remark", file=sys.stderr)
verify.handle = handle
sys.argv = ["fedrepro", "verify"]
sys.exit(warm.main())
"""
    Path("code.py").write_text(code)
    called = ["bash", "-c", f"'{sys.executable}' code.py {redirected}"]
    assert subprocess.run(called, check=False).returncode == status
    assert Path("file").read_text() == "in the file\n"


@pytest.mark.parametrize("root", [(), ("--root", ".")])
def test_a_deleted_folder_is_one_line(
    root: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main((*root, "verify")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedrepro: ")


def test_another_root_works_from_a_deleted_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / CONFIG).parent.mkdir()
    (tmp_path / CONFIG).touch()
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    seen = []
    monkeypatch.setattr(verify, "handle", lambda arguments: seen.append(Path.cwd()))
    assert main(("--root", str(tmp_path), "verify")) == 0
    assert seen == [tmp_path]


PLUGIN_ENDS = {
    "os._exit(0)": "import os\ndef end(): os._exit(0)\n",
    "SystemExit": "def end(): raise SystemExit(0)\n",
    "exit()": "import sys\ndef end(): sys.exit()\n",
    "an error without a text": (
        "class Mute(Exception):\n    def __str__(self): raise KeyError\ndef end(): raise Mute\n"
    ),
}


@pytest.mark.parametrize("end", list(PLUGIN_ENDS))
def test_a_plug_in_that_ends_the_process_is_one_line(
    end: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(PLUGIN_ENDS[end])
    own = plugins.import_file("methods", Path("own.py").absolute())
    monkeypatch.setattr(verify, "handle", lambda arguments: own.end())
    exit_before = os._exit
    assert main(VERIFY) == 2
    assert os._exit is exit_before
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"own\.py:\d: end: (SystemExit|Mute)", line)


@pytest.mark.parametrize("end", ["raise SystemExit(0)", "import os; os._exit(0)"])
def test_a_plug_in_that_ends_the_process_when_imported_is_an_error(end: str) -> None:
    Path("own.py").write_text(end)
    with pytest.raises(UserError, match=r"own\.py:1: .*SystemExit"):
        plugins.import_file("methods", Path("own.py").absolute())


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


@pytest.mark.parametrize("as_root", [False, True])
@pytest.mark.parametrize("there", ["link", "file"])
def test_results_on_a_disk_that_is_not_there_are_not_taken_for_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    there: str,
    as_root: bool,
) -> None:
    """`verify` found nothing to check and nothing wrong."""
    (tmp_path / CONFIG).parent.mkdir()
    (tmp_path / CONFIG).touch()
    results, disk = tmp_path / "results", tmp_path / "disk"
    results.symlink_to(disk) if there == "link" else results.touch()
    monkeypatch.chdir(tmp_path if not as_root else tmp_path.parent)
    called = [*(("--root", str(tmp_path)) if as_root else ()), "verify"]
    assert main(called) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and (str(disk) in line) == (there == "link")
    if there == "link":
        disk.mkdir()
        assert main(called) == 0


def test_docstrings_that_python_dropped_are_missed_at_once(tmp_path: Path) -> None:
    """Lists and pages of methods had no papers. `python -O` keeps them."""
    for level, status in (("-OO", 2), ("-O", 0)):
        called = subprocess.run(
            [sys.executable, level, "-m", "fedrepro", "methods", "fedprox"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert called.returncode == status, called.stderr
        assert ("PYTHONOPTIMIZE" in called.stderr) == (status == 2)
        assert ("Li et al." in called.stdout) == (status == 0)


def test_a_named_pipe_as_log_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    assert main(("--log", "pipe", "verify")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--log: 'pipe'" in line


@pytest.mark.parametrize("words", [("verify",), VERIFY], ids=len)
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EFBIG, errno.EMFILE, errno.ENOTCONN])
def test_what_the_system_refuses_is_one_line(
    words: tuple[str, ...],
    named: bool,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Such as someone else's folder, wherever the code looks into it."""

    def handle(arguments: argparse.Namespace) -> NoReturn:
        raise OSError(number, "such words", *["theirs"] * named)

    monkeypatch.setattr(verify, "handle", handle)
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "such words" in line and ("'theirs'" in line) == named


@pytest.mark.parametrize(
    "words", [("verify", LONG), ("export", "mine", "table", "--to", LONG), ("init", LONG)], ids=str
)
def test_a_name_that_is_too_long_is_one_line(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_folder_where_a_file_should_be_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine").mkdir()
    monkeypatch.setattr(verify, "handle", lambda arguments: sha256_of(Path("mine")))
    assert main(["verify"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'mine'" in line


@pytest.mark.parametrize("error", [(errno.ENOENT, "none", "ours"), (errno.EINVAL, "invalid")])
def test_other_errors_of_the_system_are_ours(
    error: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(arguments: argparse.Namespace) -> NoReturn:
        raise OSError(*error)

    monkeypatch.setattr(verify, "handle", handle)
    with pytest.raises(OSError, match=error[1]):
        main(["verify"])


@pytest.mark.parametrize(
    "name", ["data.csv", "Snakefile", "results/notes.md", "data/logs/visits.csv"]
)
def test_a_file_that_is_no_log_is_not_emptied(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verify, "handle", lambda arguments: None)
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("a,b\n")
    assert main(("--log", name, "verify")) == 2
    assert Path(name).read_text() == "a,b\n" and len(capsys.readouterr().err.splitlines()) == 1
    for log in ("old.log", "logs/old", "new"):
        assert main(("--log", log, "verify")) == 0


@pytest.mark.parametrize("text", ["1_0", "\u0661", "1.0", " 1", ""])
def test_a_whole_number_is_written_in_digits(text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(("run", "a/b", "fedavg", "--seed", text))
    assert ended.value.code == 2


def test_a_folder_of_methods_is_relative_to_where_the_command_is_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDREPRO_METHODS", "mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "bench" / CONFIG).parent.mkdir(parents=True)
    (tmp_path / "bench" / CONFIG).touch()
    monkeypatch.setattr(verify, "handle", lambda arguments: seen.append(NONE.of("methods")))
    assert main(("--root", "bench", "verify")) == 0
    assert seen == [tmp_path / "mine"]
