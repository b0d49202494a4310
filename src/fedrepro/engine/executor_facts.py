"""What is known of each executor without PyTorch, which :mod:`fedrepro.engine.executors` needs.

The names in experiment files, schemas and help texts, and a run's class of arithmetic, follow from
this table.
"""

from typing import NamedTuple

PER_CLIENT, STACKED = "per client", "stacked"


class ExecutorFacts(NamedTuple):
    """One executor.

    Attributes:
        words: how it computes a round's clients.
        arithmetic: how its sums are formed (:mod:`fedrepro.provenance.arithmetic`). Executors with
            the same arithmetic give the same bits, and manifests name the first of them.
        in_processes: whether a run's threads are its processes, not PyTorch's threads.
    """

    words: str
    arithmetic: str
    in_processes: bool = False


FACTS = {
    "sequential": ExecutorFacts("one by one", PER_CLIENT),
    "parallel": ExecutorFacts("in parallel processes", PER_CLIENT, in_processes=True),
    "vectorised": ExecutorFacts("side by side in one batch", STACKED),
}


def first_with(arithmetic: str) -> str | None:
    """The first executor with this arithmetic; None if there is none."""
    return next((name for name, facts in FACTS.items() if facts.arithmetic == arithmetic), None)
