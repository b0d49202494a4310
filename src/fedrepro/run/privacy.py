"""The privacy that a run with a Gaussian mechanism has spent: epsilon for delta = 1 / clients.

A round is a Gaussian mechanism on a cohort that is drawn uniformly and without replacement. Two
federations are neighbours if one client is another one, which moves the sum of clipped updates by
at most 2 S, so that the noise z S is z / 2 of the sensitivity. Rényi divergences of rounds add up
(Wang, Balle and Kasiviswanathan, AISTATS 2019, "Subsampled Rényi differential privacy and
analytical moments accountant", Theorem 27; computed by dp-accounting).

https://arxiv.org/abs/1808.00087
"""

import math
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fedrepro.config.settings import Setting
from fedrepro.data.dataset import Dataset
from fedrepro.engine.method import Method, name_of
from fedrepro.support import plugins
from fedrepro.support.errors import bad_value, refusal

ACCOUNTANT = "dp-accounting"


def refuse_unaccountable(method: Method, setting: Setting, dataset: Dataset) -> None:
    """Refuse a private run whose epsilon could not be told at its end, or would not be true.

    Raises:
        UserError: for cohorts that are not drawn as the accountant assumes, for what all clients'
            data enter without noise, for a user's sum under the noise of another class, and if the
            accountant's package is missing.
    """
    private = next((layer for layer in method.layers() if layer.mechanism), None)
    if private is None:
        return
    name = name_of(private)
    for key in ("availability", "cohorts"):
        if getattr(setting, key):
            wanted = f"none with method {name}, whose epsilon is known for fixed cohorts only"
            value = getattr(setting, key).model_dump(by_alias=False, exclude_defaults=True)
            raise bad_value(f"setting {setting.name}", key, value, wanted)
    where = f"setting {setting.name}"
    if setting.class_weights == "balanced":
        wanted = f"numbers that no client's data decide, as method {name} puts no noise on counts"
        raise bad_value(where, "class_weights", setting.class_weights, wanted)
    if dataset.standardised or dataset.train.missing is not None:
        # A client's own rows may scale them: each client then changes its own update alone.
        wanted = f"false or per_client, and no gaps: method {name} puts no noise on columns' means"
        raise bad_value(f"data set {dataset.name}", "standardise", True, wanted)
    if "vocabulary" in dataset.meta:
        wanted = f"ids that no client's texts decide, as method {name} puts no noise on the choice"
        repair = "name a tokenizer of transformers, or give ids in arrays"
        raise refusal(
            f"data set {dataset.name}", f"vocabulary: expected {wanted}: {repair}", "vocabulary"
        )
    cls, hooks = type(private), ("aggregation_weights", "server_update")
    own = next((hook for hook in hooks if plugins.overrides(cls, hook)), None)
    if own and not plugins.overrides(cls, "mechanism"):
        wanted = "a `mechanism` beside it that says its noise: the inherited one says another's"
        raise bad_value(f"method {name}", "hook", own, wanted)
    try:
        version(ACCOUNTANT)
    except PackageNotFoundError:
        why = f"{ACCOUNTANT} is not installed: pip install '.[privacy]' in the clone"
        raise refusal(f"method {name}", why, ACCOUNTANT, code="missing") from None


def spent(method: Method, cohort: int, clients: int, rounds: int) -> dict[str, Any] | None:
    """For a run's manifest: epsilon, delta, and what they follow from; None without noise.

    ``epsilon`` is None if there is no finite one, as without noise, or if delta is 1.
    """
    mechanism = next((layer.mechanism for layer in method.layers() if layer.mechanism), None)
    if not mechanism:
        return None
    budget = math.inf  # of a single client: with delta 1, an epsilon of 0 would guarantee nothing
    if clients > 1:
        budget = epsilon(mechanism.noise_multiplier, cohort, clients, rounds, 1 / clients)
    return {
        "epsilon": budget if math.isfinite(budget) else None,
        "delta": 1 / clients,
        "clip": mechanism.clip,
        "noise_multiplier": mechanism.noise_multiplier,
        "cohort": cohort,
        "neighbours": "one client replaced",
        "accountant": f"{ACCOUNTANT} {version(ACCOUNTANT)}, RDP",
    }


def epsilon(noise_multiplier: float, cohort: int, clients: int, rounds: int, delta: float) -> float:
    """Epsilon of (epsilon, delta)-differential privacy after ``rounds``; inf without noise."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    if not rounds:
        return 0.0
    if not noise_multiplier:
        return math.inf
    whole = dp_accounting.GaussianDpEvent(noise_multiplier / 2)
    events = [whole]
    if cohort < clients:  # a bound that is above that of the whole for large cohorts
        events.append(dp_accounting.SampledWithoutReplacementDpEvent(clients, cohort, whole))
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    return min(
        float(RdpAccountant(neighboring_relation=relation).compose(each, rounds).get_epsilon(delta))
        for each in events
    )
