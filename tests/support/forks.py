"""Forks of a process that has imported what takes longer than a small dry run.

It imports nothing of fedrepro: each fork finds its project's own copy. Of a fork, in turn, the
modules that it starts in processes of their own, such as the warm start, are forks as well.

python -m support.forks MODULE..., with a call in each line of stdin, whose status is a line of
stdout.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from support.places import TESTS

IMPORTED = ("torch.func", "pandas", "pydantic", "safetensors.torch", "smart_open", "yaml")
HIDDEN = ("torch", "torchgen", "functorch")
MOST_FILES = 4096  # that a process has open

_OF_PARENT: list[list[object]] = []


def run(module: str, root: Path, environment: dict[str, str], output: Path, *words: str) -> int:
    """Run a module in a folder. Returns its exit status; ``output`` gets stdout and stderr."""
    server = _server()
    assert server.stdin and server.stdout
    call = {"module": module, "root": str(root), "environment": environment, "output": str(output)}
    server.stdin.write(json.dumps({**call, "arguments": words}) + "\n")
    server.stdin.flush()
    return int(server.stdout.readline())


@cache
def _server() -> "subprocess.Popen[str]":
    from fedrepro.cli.warm_server import ALONE, NEEDED  # not in the server

    above = os.environ.get("PYTHONPATH", "")  # where Snakemake's plug-in for SLURM may lie
    path = os.pathsep.join(filter(None, (str(TESTS), above)))
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "support.forks", *IMPORTED, *NEEDED],
        env={**os.environ, **ALONE, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)  # it ends with its stdin
    return server


def _main() -> None:
    from snakemake.cli import get_argument_parser

    get_argument_parser()  # imports the plug-ins
    if sys.platform == "linux":  # macOS libraries do not survive a fork
        for name in sys.argv[1:]:
            importlib.import_module(name)
        sys.meta_path.insert(0, _Hidden())
        subprocess.Popen = _Forked  # type: ignore[assignment, misc]
    assert not any(name.partition(".")[0] == "fedrepro" for name in sys.modules)
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(
    module: str, root: str, environment: dict[str, str], output: str, arguments: list[str]
) -> NoReturn:
    """Run as `python -m module` does."""
    os.chdir(root)
    with Path(os.devnull).open() as nothing, Path(output).open("w") as said:
        os.dup2(nothing.fileno(), 0)
        for number in (1, 2):
            os.dup2(said.fileno(), number)
    sys.path.remove(str(TESTS))
    sys.path[:0] = [root, *environment["PYTHONPATH"].split(os.pathsep)]
    _run(module, arguments, environment)


def _run(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    # A new interpreter's: Snakemake, from which some are forked, has wrapped them.
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    status: object = None
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        traceback.print_exc()
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
        status = 1
    # Not the interpreter's exit: tearing all these modules down takes longer than many calls.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(status or 0))  # type: ignore[call-overload]


class _Hidden(MetaPathFinder, Loader):
    """PyTorch seems not to be imported until it is: fedrepro asks whether it has been."""

    def __init__(self) -> None:
        names = [name for name in sys.modules if name.partition(".")[0] in HIDDEN]
        self.modules = {name: sys.modules.pop(name) for name in names}
        self.found: ModuleType | None = None

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name not in self.modules:
            return None
        self.found = self.modules.pop(name)
        sys.modules.update(self.modules)
        self.modules.clear()
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        assert self.found
        self.spec = self.found.__spec__
        return self.found

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


class _Forked(subprocess.Popen[Any]):
    """Runs a module of Python in a fork of this process, which gets what a new one would have."""

    def __init__(self, command: Any, *rest: Any, **options: Any) -> None:
        if command[0] == sys.executable and "-m" in command[1:3]:
            module, *arguments = command[command.index("-m") + 1 :]
            environment = dict(options.get("env") or os.environ)
            kept = options.get("pass_fds", ())
            options["preexec_fn"] = partial(_instead, module, arguments, environment, kept)
            sys.stdout.flush()
            sys.stderr.flush()
        super().__init__(command, *rest, **options)


def _instead(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], kept: Iterable[int]
) -> NoReturn:
    """What happens in the child instead of starting Python; its stdin and the like are set."""
    for last, first in pairwise((2, *sorted(kept), MOST_FILES)):
        os.closerange(last + 1, first)
    # Neither its exit nor the end of an object lets go of what its parent holds, such as locks.
    _OF_PARENT.append(gc.get_objects())
    atexit._clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "fedrepro"]:
        del sys.modules[name]
    gc.enable()  # off before a fork
    _run(module, arguments, environment)


if __name__ == "__main__":
    _main()
