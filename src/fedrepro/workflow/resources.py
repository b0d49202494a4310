"""The resources that a run requests from a cluster: memory, time, CPUs, GPU, partition.

The experiment file takes precedence, then the estimate of ``fedrepro estimate``, then the default
resources of Snakemake's profile. ``--set-resources run:mem_mb=...`` overrides them all.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.config.config_file import Config, Resources
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.support.errors import damaged, exit_on_user_error
from fedrepro.support.files import read_json, write_atomically

if TYPE_CHECKING:
    from fedrepro.cost.model import RunCost

ESTIMATES = Path("results/calibration/runs.json")

# A run that requests too little is killed and retried with twice as much, resuming from its last
# checkpoint; a run that requests more waits longer in the queue. Nodes differ, and the hours of a
# plan are accurate to a factor of 1.5.
MEMORY_MARGIN, MEMORY_MORE = 1.5, 500  # MB
TIME_MARGIN, TIME_MORE = 3.0, 10  # minutes

DOUBLED = ("mem_mb", "runtime")  # with each retry
# A resource's name in a rule. `mem`, because Snakemake allows no function for `mem_mb` to return
# nothing.
IN_A_RULE = {
    "mem_mb": "mem", "runtime": "runtime", "cpus": "cpus_per_task", "partition": "slurm_partition",
}  # fmt: skip


def with_margins(memory: float, seconds: float) -> Resources:
    """Request megabytes and minutes for a run, from its estimated bytes and seconds."""
    megabytes = memory / 1e6 * MEMORY_MARGIN + MEMORY_MORE
    minutes = seconds / 60 * TIME_MARGIN
    return Resources(mem_mb=round(megabytes), runtime=round(minutes) + TIME_MORE)


def read_estimates(root: Path, config: Config) -> dict[str, Resources]:
    """The estimates of earlier plans for a configuration's device and threads, by config hash.

    Raises:
        UserError: if the file is damaged.
    """
    try:
        estimates = read_json(root / ESTIMATES)
        if estimates["execution"] != _execution(config):
            return {}
        return {
            digest: Resources(mem_mb=int(each["mem_mb"]), runtime=int(each["runtime"]))
            for digest, each in estimates["runs"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        wanted = "delete it; `fedrepro estimate` makes it again"
        raise damaged(ESTIMATES, f"{error}: {wanted}") from None


def save_estimates(root: Path, config: Config, runs: Mapping[str, Resources]) -> None:
    """Add estimates to :data:`ESTIMATES`.

    Raises:
        UserError: if the file is damaged.
    """
    runs = {**read_estimates(root, config), **runs}
    content = {
        "execution": _execution(config),
        "runs": {digest: runs[digest].model_dump(exclude_none=True) for digest in sorted(runs)},
    }
    with write_atomically(root / ESTIMATES) as temporary:
        temporary.write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")


def estimated(bench: Workbench, costs: Iterable["RunCost"]) -> dict[str, Resources]:
    """The resources to request from a cluster, by config hash, as far as known."""
    return {
        bench.spec_of(cost.run).digest: with_margins(cost.memory, cost.seconds)
        for cost in costs
        if cost.seconds is not None
    }


def _execution(config: Config) -> str:
    return f"{config.device.partition(':')[0]}, {config.threads} threads"


@dataclass(frozen=True)
class RunResources:
    """The resources that runs request from a cluster; ``wildcards`` are those of rule ``run``.

    Args:
        defaults: a ``snakemake.resources.Resources``, from profile and command line.
    """

    bench: Workbench
    defaults: Any

    def by_name(self) -> dict[str, Any]:
        """Functions by their names in the rule.

        Resources that no experiment file states are left out, so the defaults apply: functions for
        all of them would take a tenth of a dry run's time.
        """
        on_gpus = self.bench.config.device.startswith("cuda")
        asked: dict[str, Any] = {"gpu": self.gpus if on_gpus else 0}
        for name, in_a_rule in IN_A_RULE.items():
            stated = any(getattr(own, name) is not None for own in self._stated.values())
            if stated or (name in DOUBLED and self._estimates):
                asked[in_a_rule] = self.resource(name)
        return asked

    def gpus(self, wildcards: Any) -> int:
        """The number of GPUs of a run."""
        stated = self._of(wildcards.setting).gpu
        return 1 if stated is None else stated

    def resource(self, name: str) -> Any:
        """The function for a resource; ``name`` is its name in experiment files.

        It gives the run's value, else Snakemake's default: a rule's function overrides the default
        resources of profile and command line, and if it returned None, the job would have no such
        resource.
        """
        default = self.defaults.get(name if name == "mem_mb" else IN_A_RULE[name])

        def resource(wildcards: Any, **context: Any) -> Any:
            value = getattr(self._of(wildcards.setting), name)
            if value is None and name in DOUBLED and self._estimates:
                spec = self.bench.spec_of(RunKey.of_wildcards(wildcards))
                value = getattr(self._estimates.get(spec.digest), name, None)
            if value is None:
                return default.evaluate(wildcards, **context).value
            return value * 2 ** (context["attempt"] - 1) if name in DOUBLED else value

        return resource

    @cached_property
    def _stated(self) -> dict[str, Resources]:
        """The resources of each setting."""
        return {name: self._of(name) for name in self.bench.settings}

    def _of(self, setting: str) -> Resources:
        return self.bench.setting(setting).resources.over(self.bench.config.resources)

    @cached_property
    def _estimates(self) -> dict[str, Resources]:
        with exit_on_user_error():
            return read_estimates(self.bench.root, self.bench.config)
