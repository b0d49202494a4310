"""Forks of a process that has imported Snakemake, which takes as long as a small dry run itself.

It imports nothing of fedrepro: each fork finds its project's own copy.

python -m support.snakemake_forks, with a call in each line of stdin, whose status is a line of
stdout.
"""

import atexit
import json
import os
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

from support.places import TESTS


def snakemake(root: Path, environment: dict[str, str], output: Path, *arguments: str) -> int:
    """Call Snakemake in a folder. Returns its exit status; ``output`` gets stdout and stderr."""
    server = _server()
    assert server.stdin and server.stdout
    call = {"root": str(root), "environment": environment, "output": str(output)}
    server.stdin.write(json.dumps({**call, "arguments": arguments}) + "\n")
    server.stdin.flush()
    return int(server.stdout.readline())


@cache
def _server() -> "subprocess.Popen[str]":
    above = os.environ.get("PYTHONPATH", "")  # where Snakemake's plug-in for SLURM may lie
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "support.snakemake_forks"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), above)))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)  # it ends with its stdin
    return server


def _main() -> None:
    from snakemake.cli import get_argument_parser

    get_argument_parser()  # imports the plug-ins
    assert not any(name.partition(".")[0] == "fedrepro" for name in sys.modules)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(**json.loads(line))
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(root: str, environment: dict[str, str], output: str, arguments: list[str]) -> None:
    """Run Snakemake as `python -m snakemake` does, which ends this process."""
    os.chdir(root)
    with Path(os.devnull).open() as nothing, Path(output).open("w") as said:
        os.dup2(nothing.fileno(), 0)
        for number in (1, 2):
            os.dup2(said.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.path.remove(str(TESTS))
    sys.path[:0] = [root, *environment["PYTHONPATH"].split(os.pathsep)]
    sys.argv[1:] = arguments
    runpy.run_module("snakemake", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
