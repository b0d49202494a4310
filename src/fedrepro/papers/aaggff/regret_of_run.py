"""The regret of a run's decisions and its proven bound, from the recorded losses."""

import math
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np

from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.methods import registry
from fedrepro.methods.adaptive_weighting.rule import Decider, Observed
from fedrepro.papers.aaggff.replay import Bounded, Replay, play, replay
from fedrepro.run.results import RunRecord, find_run, made_of
from fedrepro.support.errors import bad_value, refusal
from fedrepro.support.plugins import NONE, Folders


def regret_as_json(workbench: Workbench, run: RunKey, progress: Any = None) -> dict[str, Any]:
    """The regret of a finished run of this machine, or of a reference result.

    Returns:
        clients; linearised, as in :class:`fedrepro.papers.aaggff.replay.Replay`; and round, regret,
        bound and objective after every round that updated the rule, None if undefined. The lists
        are empty if the run recorded no losses.

    Raises:
        UserError: if the run is missing, or its method's regret has no bound.
    """
    record, own = find_run(workbench.root, run), workbench.plugins
    if record.state != "finished":
        why = f"{record.why}: expected a finished run: {run.command}"
        raise refusal(run.folder, why, code="missing")
    if record.landed:
        only = "landed results keep the losses of the last round only"
        why = f"{only}: expected a run of this machine: {run.command}"
        raise refusal(run.folder, why, code="missing")
    replayed = regret_of(record, own)
    names = ("round", "regret", "bound")
    columns = {name: replayed.rounds[name].tolist() if replayed else [] for name in names}
    return {
        "of": made_of([record]),
        "clients": int(record.manifest["clients"]),
        "linearised": bool(replayed and replayed.linearised),
        **{
            name: [value if math.isfinite(value) else None for value in values]
            for name, values in columns.items()
        },
        "objective": objective_of(record, own),
    }


def regret_of(record: RunRecord, own: Folders = NONE) -> Replay | None:
    """The recorded losses, replayed through the run's rule; None without losses.

    Raises:
        UserError: if the run's method has no rule whose regret has a bound.
    """
    rounds = list(_observed(record))
    rule = _rule_of(record, own)
    return replay(rule, int(record.manifest["clients"]), rounds) if rounds else None


def objective_of(record: RunRecord, own: Folders = NONE) -> list[float]:
    """The cumulative global objective after each round that updated the rule (Appendix B.1).

    A round adds the sum over its clients of p_i F_i: their entries in the decision with which the
    round began, times their losses.

    Raises:
        UserError: as :func:`regret_of`.
    """
    rounds = play(_rule_of(record, own), int(record.manifest["clients"]), _observed(record))
    return list(
        accumulate(
            float(step.before["decision"][step.seen.cohort] @ step.seen.losses) for step in rounds
        )
    )


def _rule_of(record: RunRecord, own: Folders) -> Decider:
    run = record.manifest["run"]
    method, _ = registry.compose(run["composition"], run["hyperparameters"], own)
    for layer in method.layers():
        if isinstance(layer, Decider) and isinstance(layer, Bounded):
            return layer
    wanted = "one that decides by a rule with a bound, such as aaggff_s"
    raise bad_value(record.folder, "method", record.run.method, wanted)


def _observed(record: RunRecord) -> Iterator[Observed]:
    """The rounds that updated the rule; in the others a loss was not finite."""
    table = {name: np.array(values) for name, values in record.decisions.items()}
    if not table:
        return
    firsts = np.flatnonzero(np.diff(table["round"], prepend=-1))
    for part in np.split(np.arange(len(table["round"])), firsts[1:]):
        losses = table["loss"][part]
        if np.isfinite(losses).all():
            number = int(table["round"][part[0]]) - 1
            cohort = table["client"][part].astype(np.int64)
            # Rules with a bound use losses only, not sizes.
            everyone = int(record.manifest["clients"])
            yield Observed(number, everyone, cohort, losses, np.ones(len(part)))
