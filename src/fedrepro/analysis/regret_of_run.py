"""The regret of a run's decisions beside its proven bound, from the losses that it recorded."""

from collections.abc import Iterator

import numpy as np

from fedrepro.analysis.replay import Bounded, Replay, replay
from fedrepro.methods import _registry as registry
from fedrepro.methods.deciding.rule import Decider, Observed
from fedrepro.run.results import RunRecord
from fedrepro.support.errors import bad_value


def regret_of(record: RunRecord) -> Replay | None:
    """The recorded losses, played once more through the run's own rule; None without any.

    Raises:
        UserError: when the run's method decides by no rule whose regret has a bound.
    """
    rounds = list(_observed(record))
    rule = _rule_of(record)
    return replay(rule, int(record.manifest["clients"]), rounds) if rounds else None


def _rule_of(record: RunRecord) -> Decider:
    run = record.manifest["run"]
    method, _ = registry.compose(run["composition"], run["hyperparameters"])
    for layer in method.layers():
        if isinstance(layer, Decider) and isinstance(layer, Bounded):
            return layer
    raise bad_value(
        f"figure of {record.run.setting}",
        "method",
        record.run.method,
        "one that decides by a rule with a bound, such as aaggff_s",
    )


def _observed(record: RunRecord) -> Iterator[Observed]:
    """The rounds that taught the rule something; in the others a loss was no finite number."""
    table = {name: np.array(values) for name, values in record.decisions.items()}
    if not table:
        return
    firsts = np.flatnonzero(np.diff(table["round"], prepend=-1))
    for part in np.split(np.arange(len(table["round"])), firsts[1:]):
        losses = table["loss"][part]
        if np.isfinite(losses).all():
            number = int(table["round"][part[0]]) - 1
            cohort = table["client"][part].astype(np.int64)
            # Rules with a bound look at losses only, not at sizes.
            everyone = int(record.manifest["clients"])
            yield Observed(number, everyone, cohort, losses, np.ones(len(part)))
