"""A run that is killed between two rounds.

In a fork of this process, as a new one would take longer to import PyTorch than the run takes.
`test_killed_for_real` in tests/unit/run/test_shared_prefix.py has a process of its own.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from fedrepro.run import runner


def kill_after(rounds: int, carry_out: Callable[[runner.Report], object]) -> None:
    """SIGKILL while a run reports this round, before what follows in it."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:

        def report(progress: runner.Progress) -> None:
            os.write(theirs, bytes([progress.round]))
            if progress.round == rounds:
                signal.pause()

        with suppress(BaseException):
            carry_out(report)
        os._exit(1)
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as told:
        assert [*b"".join(told.read(1) for _ in range(rounds))] == [*range(1, rounds + 1)]
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
