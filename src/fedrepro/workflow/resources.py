"""The resources that a run requests from a cluster: memory, time, CPUs, GPU, partition.

The experiment file takes precedence, then the estimate of ``fedrepro estimate``, then the default
resources of Snakemake's profile. ``--set-resources run:mem_mb=...`` overrides them all.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.config.config_file import Config
from fedrepro.provenance import fingerprint
from fedrepro.support.errors import UserError
from fedrepro.support.files import read_json, write_atomically

if TYPE_CHECKING:
    from fedrepro.cost.model import CostModel, RunCost

ESTIMATES = Path("results/calibration/runs.json")

# A run that requests too little is killed and retried with twice as much, resuming from its last
# checkpoint; a run that requests more waits longer in the queue. Nodes differ, and the hours of a
# plan are accurate to a factor of 1.5.
MEMORY_MARGIN, MEMORY_MORE = 1.5, 500  # MB
TIME_MARGIN, TIME_MORE = 3.0, 10  # minutes

DOUBLED = ("mem_mb", "runtime")  # with each retry


@dataclass(frozen=True)
class ResourceEstimate:
    """What to request for a run: megabytes and minutes, margins included."""

    mem_mb: int
    runtime: int

    @classmethod
    def of(cls, memory: float, seconds: float) -> "ResourceEstimate":
        """From a plan's bytes and seconds."""
        megabytes = memory / 1e6 * MEMORY_MARGIN + MEMORY_MORE
        return cls(round(megabytes), round(seconds / 60 * TIME_MARGIN) + TIME_MORE)


def read_estimates(root: Path, config: Config) -> dict[str, ResourceEstimate]:
    """The estimates of earlier plans for a configuration's device and threads, by config hash.

    Raises:
        UserError: if the file is damaged.
    """
    try:
        found = read_json(root / ESTIMATES)
        if found["execution"] != _execution(config):
            return {}
        return {
            digest: ResourceEstimate(int(each["mem_mb"]), int(each["runtime"]))
            for digest, each in found["runs"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        wanted = "delete it; `fedrepro estimate` makes it again"
        raise UserError(f"{ESTIMATES}: damaged: {error}: {wanted}") from None


def save_estimates(root: Path, config: Config, runs: Mapping[str, ResourceEstimate]) -> None:
    """Add estimates to :data:`ESTIMATES`.

    Raises:
        UserError: if the file is damaged.
    """
    runs = {**read_estimates(root, config), **runs}
    content = {
        "execution": _execution(config),
        "runs": {digest: asdict(runs[digest]) for digest in sorted(runs)},
    }
    with write_atomically(root / ESTIMATES) as temporary:
        temporary.write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")


def estimated(cost_model: "CostModel", costs: Iterable["RunCost"]) -> dict[str, ResourceEstimate]:
    """The resources to request from a cluster, by config hash, as far as known."""
    return {
        fingerprint.of_config(cost_model.spec(cost.run)): ResourceEstimate.of(
            cost.memory, cost.seconds
        )
        for cost in costs
        if cost.seconds is not None
    }


def _execution(config: Config) -> str:
    return f"{config.device.partition(':')[0]}, {config.threads} threads"


def or_default(own: Callable[[Any], str | int | None], name: str, default: Any) -> Any:
    """A function for rule ``run``'s resource ``name``: the run's value, else Snakemake's default.

    A rule's function overrides the default resources of profile and command line; if it returned
    None, the job would have no such resource.

    Args:
        default: a ``snakemake.resources.Resource``.
    """

    def resource(wildcards: Any, **context: Any) -> Any:
        value = own(wildcards)
        if value is None:
            return default.evaluate(wildcards, **context).value
        return value * 2 ** (context["attempt"] - 1) if name in DOUBLED else value

    return resource
