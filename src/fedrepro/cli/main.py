"""The command ``fedrepro``: its subcommands stand in ``commands.yaml``, and in those of papers."""

import argparse
import errno
import faulthandler
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import IO, Any, cast

from fedrepro import __version__
from fedrepro.analysis.studies import studies
from fedrepro.engine.executor_facts import FACTS
from fedrepro.support import commands, plugins
from fedrepro.support.errors import (
    Interrupted,
    UserError,
    bad_argument,
    bad_value,
    brief,
    cannot_write,
    refusal,
    text_of,
)
from fedrepro.support.files import expect_folder
from fedrepro.support.packaged import CONFIG, ORIGIN
from fedrepro.support.printing import printable
from fedrepro.support.terminal import MORE_MEMORY, Unfailing, say, without_log

Arguments = Mapping[str, Mapping[str, Any]]  # name -> keywords of `add_argument`


def whole_number(text: str) -> int:
    """A number as an option gives it; ``int`` takes 1_0, and digits of other scripts.

    Raises:
        ArgumentTypeError: for another text.
    """
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number")
    return int(text)


TYPES = {"float": float, "int": whole_number, "path": Path}
# The argument has an effect with another option only, or only without it.
RULES = ("needs", "without")

# Words of earlier releases, which go on working: old word -> command.
ALIASES = {"why": "explain", "plan": "estimate"}

# Errors with which the system refuses a file or folder, whatever the code that asks for it.
REFUSED_BY_SYSTEM = {
    errno.EACCES, errno.EBUSY, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ELOOP, errno.EMFILE,
    errno.ENAMETOOLONG, errno.ENFILE, errno.ENOLCK, errno.ENOSPC, errno.ENOTCONN, errno.EPERM,
    errno.EROFS, errno.ESTALE,
}  # fmt: skip
# Errors about something of another kind than a file: `files.plain` raises the first.
NO_FILE = {errno.EINVAL, errno.EISDIR, errno.ENOTDIR}

# In the messages of errors that other libraries raise when memory runs out.
NO_MEMORY = (
    "bad_alloc", "MemoryError", "allocate memory", "out of memory", "enough memory",
    "start new thread", "failed to map segment",
)  # fmt: skip


class _Help(argparse.HelpFormatter):
    """Wraps between words, not within ``--set``, and leaves indented lines whole, to be copied."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = text.splitlines()
        whole = (
            line if line[:1] == " " else "\n".join(self._split_lines(line, width)) for line in lines
        )
        return "\n".join(whole)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; each subcommand sets ``handler``."""
    top = argparse.ArgumentParser(
        prog="fedrepro",
        description="Reproduce published tables of federated learning, cell by cell.",
        epilog="`snakemake --cores all` makes all that is missing; a command here is one step.\n"
        f"Documentation: {ORIGIN / 'docs/index.md'}",
        formatter_class=_Help,
    )
    top.add_argument("--version", action="version", version=f"fedrepro {__version__}")
    top.add_argument("--log", type=Path, metavar="FILE", help="also write messages to this file")
    top.add_argument(
        "--root", type=Path, metavar="FOLDER", help="workbench folder (default: current folder)"
    )
    subparsers = top.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True
    )
    shared: Arguments = {}  # those that name a run
    for content in commands.described():
        shared = shared or content["a_run"]
        _add(subparsers, content["commands"], shared)
    for old, command in ALIASES.items():
        subparsers.choices[old] = subparsers.choices[command]
    return top


def _add(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",
    entries: Mapping[str, Any],
    shared: Arguments,
) -> None:
    """Add the commands of a file.

    Args:
        shared: the arguments of commands that name a run.
    """
    for name, entry in entries.items():
        description = entry["description"].replace("{studies}", ", ".join(studies()))
        parser = subparsers.add_parser(
            name,
            help=entry["help"],
            description=description,
            epilog=entry.get("epilog"),
            formatter_class=_Help,
        )
        parser.set_defaults(**{key: entry.get(key) for key in ("handler", "computes", "writes")})
        arguments = (shared if entry.get("names_a_run") else {}) | entry.get("arguments", {})
        groups: dict[str | None, argparse._ArgumentGroup | argparse.ArgumentParser] = {None: parser}
        ruled: list[tuple[argparse.Action, str, str, Any]] = []
        for argument, keys in arguments.items():
            ours = ("type", "group", *RULES)
            options = {key: value for key, value in keys.items() if key not in ours}
            if "type" in keys:
                options["type"] = TYPES[keys["type"]]
            if "help" in keys:
                options["help"] = keys["help"].replace("{executors}", ", ".join(FACTS))
            title = keys.get("group")
            if title not in groups:
                groups[title] = parser.add_argument_group(title)
            action = groups[title].add_argument(argument, **options)
            for rule in (rule for rule in RULES if rule in keys):
                ruled.append((action, rule, keys[rule], action.default))
                action.default = None
        parser.set_defaults(ruled=ruled)
        if "actions" in entry:
            actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
            _add(actions, entry["actions"], shared)


def _apply_rules(chosen: argparse.Namespace) -> None:
    """Give the arguments that have a rule their defaults, unless they are given.

    Raises:
        UserError: for one that is given and has no effect.
    """
    for action, rule, other, default in chosen.ruled:
        value = getattr(chosen, action.dest)
        is_there = getattr(chosen, other.lstrip("-")) not in (None, False)
        if value is None:
            setattr(chosen, action.dest, default)
        elif is_there != (rule == "needs"):
            name = next(iter(action.option_strings), action.metavar)
            with_it = f"none {'without' if rule == 'needs' else 'with'} {other}: it has no effect"
            shown = str(value) if isinstance(value, Path) else value
            raise bad_argument(str(name), shown, with_it)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    What cannot be printed, because its reader has gone or its disk is full, is lost; the command
    goes on.

    Returns:
        The exit status: 2 for invalid input, for errors in plug-ins, if memory runs out and if a
        result could not be printed, unless its reader has gone; 1 for internal errors; 130 when
        interrupted (128 + the number of another signal); else what the command returns, or 0.
        Tracebacks of plug-ins and of internal errors go to the log, if there is one.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    out = Unfailing(sys.stdout)  # no failure to print ends what is done
    err = Unfailing(sys.stderr)
    with redirect_stdout(cast(IO[str], out)), redirect_stderr(cast(IO[str], err)):
        try:
            chosen = parser().parse_args(words)
        except SystemExit as error:  # after --help and --version, too
            status, printed = error.code, True
            if status or out.delivered():
                raise
        else:
            # What a command prints that writes files is a remark: it is done without.
            status, printed = _carry_out(chosen, words), chosen.writes is None
        if status == 0 and printed and not out.delivered():
            say(f"fedrepro: stdout: could not be written: {out.error}")
            return 2
        return int(status or 0)


def _carry_out(chosen: argparse.Namespace, words: Sequence[str]) -> int:
    """Run the command that was parsed from ``words``. Returns its status."""
    try:
        log = _open(chosen.log)
        if sys.flags.optimize > 1:  # Python then drops docstrings
            where, given = "environment", sys.flags.optimize
            raise bad_value(
                where, "PYTHONOPTIMIZE", given, "0 or 1: pages and lists show docstrings"
            )
        root = _root(chosen.root)
        _apply_rules(chosen)
    except UserError as error:
        say(f"fedrepro: {error}")
        return 2
    with _logged(log):
        try:
            with _refused_in_a_line(), _inside(root), plugins.blamed(), _memory_explained(words):
                return int(commands.function(chosen.handler)(chosen) or 0)
        except UserError as error:
            if isinstance(error, plugins.PluginError) and log:
                log.write(printable("".join(traceback.format_exception(error.__cause__))))
            say(f"fedrepro: {error}")
            return 2
        except Interrupted as error:
            say(f"fedrepro: {error}")
            return error.status
        except KeyboardInterrupt:
            say("fedrepro: interrupted")
            return 130
        except Exception as error:
            if log is None:
                raise
            log.write(printable(traceback.format_exc()))
            line = f"fedrepro: internal error: {text_of(error)}"
            say(f"{line}; please report it with {chosen.log}")
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
            self.log.write(cleaned)
        return len(text)

    def flush(self) -> None:
        self.terminal.flush()
        if self.log:
            self.log.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self.terminal, name)


def _open(path: Path | None) -> IO[str] | None:
    """Open the log for appending, after emptying it. On a full disk, go on without one.

    Raises:
        UserError: for a folder, or a file that cannot be written.
    """
    if path is None:
        return None
    try:
        if path.is_dir():
            raise bad_argument("--log", str(path), "a file, not a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():  # not /dev/null
            if path.suffix != ".log" and path.stat().st_size:
                wanted = "a new file, or one whose name ends in .log: a log is emptied"
                raise bad_argument("--log", str(path), wanted)
            path.unlink()
        return cast(
            IO[str], Unfailing(open(path, "a", encoding="utf-8", buffering=1, opener=_opener))
        )
    except OSError as error:
        unwritten = cannot_write(f"the command line: --log: {brief(str(path))}", error)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise unwritten from error
        say(f"fedrepro: {unwritten}; going on without")
        return None
    except ValueError as error:  # such as a NUL in the name
        raise bad_argument("--log", str(path), f"a file ({error})") from error


def _opener(path: str, flags: int) -> int:
    # A named pipe without a reader is an error at once; one is not waited for.
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


def _root(folder: Path | None) -> Path:
    """The working directory: commands' paths are relative to it, except for the log's.

    Raises:
        UserError: if the folder is not a workbench, or one with lost results.
    """
    if folder is not None and not (folder / CONFIG).is_file():
        wanted = f"a workbench, which has {CONFIG}; `fedrepro init` creates one"
        raise bad_argument("--root", str(folder), wanted)
    root = folder or Path()
    if (root / CONFIG).is_file():
        expect_folder(root / "results")
    return root


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in a folder. Unlike contextlib's `chdir`, leave one that has been deleted.

    Raises:
        UserError: if it cannot be entered, or is the current one and has been deleted.
    """
    before = os.open(".", os.O_RDONLY)
    if own := os.environ.get(plugins.VARIABLE):  # relative to where the command was called
        os.environ[plugins.VARIABLE] = str(Path(own).absolute())
    try:
        os.chdir(folder)
        Path.cwd()
    except OSError as error:
        os.close(before)
        where = "the current folder" if folder == Path() else f"--root {folder}"
        said = "has been deleted" if isinstance(error, FileNotFoundError) else error.strerror
        raise refusal(where, f"{said}: go to a folder that exists", code="missing") from error
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


@contextmanager
def _logged(log: IO[str] | None) -> Iterator[None]:
    """Clean what is printed, and copy what is written to stderr to the log.

    If a library aborts the process, as C++ does when memory runs out, a line in the log says so.
    """
    out, err = cast(IO[str], _Cleaned(sys.stdout)), cast(IO[str], _Cleaned(sys.stderr, log))
    try:
        if log:
            faulthandler.enable(log)
        with redirect_stdout(out), redirect_stderr(err):
            yield
    finally:
        if log:
            faulthandler.disable()
            with suppress(OSError):  # a full disk
                log.close()


@contextmanager
def _refused_in_a_line() -> Iterator[None]:
    """Turn an error with which the system refuses a file or folder into one line.

    Raises:
        UserError: with the file and the system's words.
    """
    try:
        yield
    except OSError as error:
        refused = error.errno in REFUSED_BY_SYSTEM or (error.filename and error.errno in NO_FILE)
        nowhere = error.errno == errno.ENOENT and not error.filename  # as `tempfile` says it
        if not (refused or nowhere):
            raise
        named = brief(str(error.filename)) if error.filename else "a file"
        raise refusal(named, str(error.strerror), code="unreadable") from error


@contextmanager
def _memory_explained(words: Sequence[str]) -> Iterator[None]:
    """Turn an error that says that memory ran out into one line.

    Raises:
        UserError: with the command and what to change.
    """
    try:
        yield
    except (MemoryError, RuntimeError, OSError, ImportError) as error:
        text = text_of(error)
        if not isinstance(error, MemoryError) and not any(map(text.__contains__, NO_MEMORY)):
            raise
        command, _ = without_log(words)
        reason = str(error).strip().rpartition("\n")[2] or type(error).__name__
        why = f"memory ran out ({brief(reason)}): {MORE_MEMORY}"
        raise refusal(command, why, code="") from error
