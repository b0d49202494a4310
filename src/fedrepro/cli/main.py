"""The command ``fedrepro``: its subcommands come from :mod:`fedrepro.cli`."""

import argparse
import faulthandler
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, cast

from fedrepro import __version__
from fedrepro.cli import (
    analysis,
    check,
    check_data,
    curve,
    data,
    init,
    listing,
    plan,
    rank,
    report,
    run,
    synth,
    verify,
    why,
)
from fedrepro.cli.memory import MORE_MEMORY, without_log
from fedrepro.config.workbench import CONFIG
from fedrepro.support import papers, plugins
from fedrepro.support.errors import Interrupted, UserError, bad_value, brief, cannot_write
from fedrepro.support.printing import printable

# In the messages of errors that other libraries raise when memory runs out.
NO_MEMORY = (
    "bad_alloc", "MemoryError", "allocate memory", "out of memory", "enough memory",
    "start new thread", "failed to map segment",
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; each subcommand sets ``handler``."""
    top = argparse.ArgumentParser(
        prog="fedrepro",
        description="Reproduce published tables of federated learning, cell by cell.",
        epilog="`snakemake --cores all` makes everything that is missing; each command here is one "
        "step.",
    )
    top.add_argument("--version", action="version", version=f"fedrepro {__version__}")
    top.add_argument("--log", type=Path, metavar="FILE", help="also write messages to this file")
    top.add_argument(
        "--root", type=Path, metavar="FOLDER", help="workbench folder (default: current folder)"
    )
    subparsers = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    modules = (
        init,
        run,
        check,
        listing,
        data,
        check_data,
        report,
        analysis,
        synth,
        plan,
        rank,
        verify,
        curve,
        why,
    )
    for commands in modules:
        commands.register(subparsers)
    for name in papers.files_of("command"):
        papers.load("command", name).register(subparsers)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit status: 2 for invalid input, for errors in plug-ins and if memory runs out; 1 for
        internal errors; 130 when interrupted (143 by SIGTERM); else what the command returns, or 0.
        Tracebacks of plug-ins and of internal errors go to the log, if there is one.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    chosen = parser().parse_args(words)
    try:
        log = _open(chosen.log)
        root = _root(chosen.root)
    except UserError as error:
        print(f"fedrepro: {error}", file=sys.stderr)
        return 2
    with _logged(log), chdir(root):
        try:
            with plugins.blamed(), _memory_explained(words):
                return chosen.handler(chosen) or 0
        except UserError as error:
            if isinstance(error, plugins.PluginError) and log:
                log.write(printable("".join(traceback.format_exception(error.__cause__))))
            print(f"fedrepro: {error}", file=sys.stderr)
            return 2
        except Interrupted as error:
            print(f"fedrepro: {error}", file=sys.stderr)
            return error.status
        except KeyboardInterrupt:
            print("fedrepro: interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
            sys.stderr.close()
            return 0
        except Exception as error:
            if log is None:
                raise
            log.write(printable(traceback.format_exc()))
            line = f"fedrepro: internal error: {type(error).__name__}: {error}"
            print(f"{line}; please report it with {chosen.log}", file=sys.stderr)
            return 1


class _Cleaned:
    """A text stream that writes printable text to the terminal and, if there is one, to a log.

    rich, whose control characters are meant, writes to ``rich_proxied_file``.
    """

    def __init__(self, terminal: IO[str], log: IO[str] | None = None) -> None:
        self.terminal, self.log = terminal, log
        self.rich_proxied_file = terminal

    def write(self, text: str) -> int:
        cleaned = printable(text)
        self.terminal.write(cleaned)
        if self.log:
            with suppress(OSError):  # a full disk: the terminal has the message already
                self.log.write(cleaned)
        return len(text)

    def flush(self) -> None:
        self.terminal.flush()
        if self.log:
            with suppress(OSError):
                self.log.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self.terminal, name)


def _open(path: Path | None) -> IO[str] | None:
    """Open the log for appending, after emptying it.

    Raises:
        UserError: for a folder, or a file that cannot be written.
    """
    if path is None:
        return None
    try:
        if path.is_dir():
            raise bad_value("the command line", "--log", str(path), "a file, not a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():  # not /dev/null
            path.unlink()
        return path.open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        raise cannot_write(f"the command line: --log: {brief(str(path))}", error) from error
    except ValueError as error:  # such as a NUL in the name
        raise bad_value("the command line", "--log", str(path), f"a file ({error})") from error


def _root(folder: Path | None) -> Path:
    """The working directory: commands' paths are relative to it, except for the log's.

    Raises:
        UserError: if the folder is not a workbench.
    """
    if folder is not None and not (folder / CONFIG).is_file():
        wanted = f"a workbench, which has {CONFIG}; `fedrepro init` creates one"
        raise bad_value("the command line", "--root", str(folder), wanted)
    return folder or Path()


@contextmanager
def _logged(log: IO[str] | None) -> Iterator[None]:
    """Clean what is printed, and copy what is written to stderr to the log.

    If a library aborts the process, as C++ does when memory runs out, a line in the log says so.
    """
    out, err = sys.stdout, sys.stderr
    with log or nullcontext():
        if log:
            faulthandler.enable(log)
        sys.stdout = cast(IO[str], _Cleaned(out))
        sys.stderr = cast(IO[str], _Cleaned(err, log))
        try:
            yield
        finally:
            sys.stdout, sys.stderr = out, err
            if log:
                faulthandler.disable()


@contextmanager
def _memory_explained(words: Sequence[str]) -> Iterator[None]:
    """Turn an error that says that memory ran out into one line.

    Raises:
        UserError: with the command and what to change.
    """
    try:
        yield
    except (MemoryError, RuntimeError, OSError, ImportError) as error:
        if not isinstance(error, MemoryError) and not any(map(str(error).__contains__, NO_MEMORY)):
            raise
        command, _ = without_log(words)
        reason = str(error).strip().rpartition("\n")[2] or type(error).__name__
        raise UserError(f"{command}: memory ran out ({brief(reason)}): {MORE_MEMORY}") from error
