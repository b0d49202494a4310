"""The command ``fedrepro``: its subcommands come from :mod:`fedrepro.cli`."""

import argparse
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from fedrepro import __version__
from fedrepro.cli import (
    analysis,
    check,
    data,
    init,
    listing,
    plan,
    report,
    run,
    synth,
    verify,
    why,
)
from fedrepro.config.workbench import CONFIG
from fedrepro.support import papers, plugins
from fedrepro.support.errors import Interrupted, UserError, bad_value, brief, cannot_write


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
    modules = (init, run, check, listing, data, report, analysis, synth, plan, verify, why)
    for commands in modules:
        commands.register(subparsers)
    for name in papers.files_of("command"):
        papers.load("command", name).register(subparsers)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit status: 2 for invalid input and for errors in plug-ins; 1 for internal errors; 130
        when interrupted (143 by SIGTERM); else what the command returns, or 0. Tracebacks of
        plug-ins and of internal errors go to the log, if there is one.
    """
    chosen = parser().parse_args(arguments)
    try:
        log = _open(chosen.log)
        root = _root(chosen.root)
    except UserError as error:
        print(f"fedrepro: {error}", file=sys.stderr)
        return 2
    with _logged(log), chdir(root):
        try:
            with plugins.blamed():
                return chosen.handler(chosen) or 0
        except UserError as error:
            if isinstance(error, plugins.PluginError) and chosen.log is not None:
                with chosen.log.open("a", encoding="utf-8") as log:
                    traceback.print_exception(error.__cause__, file=log)
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
            if chosen.log is None:
                raise
            with chosen.log.open("a", encoding="utf-8") as log:
                traceback.print_exc(file=log)
            line = f"fedrepro: internal error: {type(error).__name__}: {error}"
            print(f"{line}; please report it with {chosen.log}", file=sys.stderr)
            return 1


class _Both:
    """A text stream that writes to the terminal and to a log."""

    def __init__(self, terminal: IO[str], log: IO[str]) -> None:
        self.terminal, self.log = terminal, log

    def write(self, text: str) -> int:
        written = self.terminal.write(text)
        with suppress(OSError):  # a full disk: the terminal has the message already
            self.log.write(text)
        return written

    def flush(self) -> None:
        self.terminal.flush()
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
    """Copy what is written to stderr to the log."""
    if log is None:
        yield
        return
    terminal = sys.stderr
    with log:
        sys.stderr = cast(IO[str], _Both(terminal, log))
        try:
            yield
        finally:
            sys.stderr = terminal
