"""The runs of ``fedrepro rank``: what they cost, and their training."""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedrepro.cli.console import print_rows
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.support.errors import UserError
from fedrepro.support.printing import counted
from fedrepro.support.terminal import ASKED_TO_END, say

if TYPE_CHECKING:
    from fedrepro.workflow.cost import RunCost


# Exit statuses of a run that a signal stopped, after its checkpoint.
STOPPED = tuple(128 + number for number in ASKED_TO_END)


@dataclass(frozen=True)
class Wanted:
    """A run that counts, and whether its synthetic set is evaluated."""

    run: RunKey
    judged: bool = False


@dataclass(frozen=True)
class Cost:
    """What runs cost.

    Attributes:
        lines: by setting, the inputs together, and the total last; as JSON values.
        seconds: of each run, as far as known.
    """

    lines: list[dict[str, Any]]
    seconds: Mapping[RunKey, float]

    def in_words(self, cores: int) -> str:
        total = self.lines[-1]
        left = total["runs"] - total["done"]
        if not left:
            return "Nothing to train: all runs are there."
        text = f"{counted(left, 'run')} to train: {span(total['hours'], 'CPU ')}, "
        text += f"{span(total['wall'])} with {cores} at a time"
        return text + (
            f"; {total['unknown']} of them at unknown cost." if total["unknown"] else "."
        )

    def print(self) -> None:
        """A line for each setting."""
        cells = [
            (line["name"], str(line["runs"] - line["done"]), f"{60 * line['hours']:.1f}")
            for line in self.lines[:-1]
        ]
        print_rows(("setting", "runs", "CPU_minutes"), cells)


def span(hours: float, what: str = "") -> str:
    """Such as ``7.2 minutes`` and ``2.5 CPU hours``."""
    return f"{60 * hours:.1f} {what}minutes" if hours < 1 else f"{hours:.1f} {what}hours"


def cost_of(bench: Workbench, runs: Sequence[RunKey], cores: int) -> Cost:
    """The cost of runs and of their inputs."""
    from fedrepro.workflow.estimate import AROUND, CostLine, rates_for
    from fedrepro.workflow.league import OwnCosts, OwnRuns
    from fedrepro.workflow.schedule import makespan

    costs_of = OwnCosts(bench, [OwnRuns("", "", "compact", runs)])
    rates = rates_for(costs_of)
    costs = costs_of.costs(rates)
    groups: dict[str, list[RunCost]] = {}
    own = {*runs}
    for run, cost in costs.items():
        groups.setdefault(run.setting if run in own else "inputs", []).append(cost)
    start = rates.start_seconds or 0.0
    seconds = {
        run: max(0.0, cost.seconds - start) + AROUND
        for run, cost in costs.items()
        if cost.seconds is not None
    }
    after = {run: [each for each in costs_of.first(run) if each in seconds] for run in seconds}
    wall = makespan(seconds, after, cores)
    lines = [CostLine.of("setting", name, each, 0.0) for name, each in groups.items()]
    lines.append(CostLine.of("all", "all", costs.values(), wall))
    return Cost([asdict(line) for line in lines], seconds)


def train(
    bench: Workbench,
    wanted: Sequence[Wanted],
    cores: int,
    seconds: Mapping[RunKey, float],
    what: str,
) -> int:
    """Make what runs need, then train. Returns the number of runs that failed."""
    if not wanted:
        return 0
    from fedrepro.cli.pool import Job, run_jobs
    from fedrepro.cli.run import carry_out, prepare
    from fedrepro.run import runner  # noqa: F401 - imported before the forks, which share it
    from fedrepro.run.results import LOGS
    from fedrepro.workflow.league import missing_inputs

    runs = [each.run for each in wanted]
    if files := missing_inputs(bench, runs):
        say(f"making {len(files)} files that the runs need")
        _snakemake(files, cores)
    for run in runs:  # what Snakemake does not know: partitions with validation samples
        if not (bench.root / bench.setting(run.setting).partition_path(run.seed)).exists():
            prepare(bench, run)

    def job(each: Wanted) -> Job:
        run = each.run
        log = bench.root / LOGS / run.setting / run.method / f"seed{run.seed}.log"

        def work() -> None:
            carry_out(bench, run)
            if each.judged:
                from fedrepro.cli.analysis import judge

                judge(bench, run)

        return Job(work, log)

    began, failed, done = time.monotonic(), [], []
    weights = [seconds.get(run, 1.0) for run in runs]

    def ended(place: int, status: int, took: float) -> None:
        run = runs[place]
        name = f"{run.setting} {run.method} seed {run.seed}"
        if status in STOPPED:
            say(f"{what} {name}: {_reason(bench, run)}")
            return
        done.append(weights[place])
        left = (time.monotonic() - began) * (sum(weights) / sum(done) - 1)
        how = f"done in {took:.0f} s" if status == 0 else f"failed: {_reason(bench, run)}"
        failed.extend([run] if status else [])
        rest = f"; {left / 60:.1f} minutes left" if len(done) < len(runs) else ""
        say(f"{what} {len(done)} of {len(runs)}: {name}: {how}{rest}")

    run_jobs([job(each) for each in wanted], cores, ended)
    return len(failed)


def _snakemake(files: Sequence[str], cores: int) -> None:
    """Make files; of what is printed, keep the line of each file.

    Raises:
        UserError: if some could not be made.
    """
    command = [sys.executable, "-m", "snakemake", "--cores", str(cores), *files, "--quiet"]
    # Snakemake's own lines would bury those of the runs. Without them it hides errors, too, so
    # what fails is tried again and said.
    for hidden in (["all"], ["host", "progress", "rules"]):
        called = subprocess.run(
            [*command, *hidden], stdout=2, check=False
        )  # stdout is the result's
        if not called.returncode:
            return
    why = f"snakemake ended with status {called.returncode}; see above"
    raise UserError(f"what the runs need could not be made: {why}")


def _reason(bench: Workbench, run: RunKey) -> str:
    from fedrepro.run.results import read_run

    return read_run(bench.root, run).why.removeprefix("failed: ")
