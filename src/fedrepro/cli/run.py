"""``fedrepro run``: one run, called by the workflow or by hand."""

import argparse
import math
import time
from collections.abc import Mapping
from typing import Any

from fedrepro.cli.arguments import requested
from fedrepro.config.config_file import Overrides
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import ArtifactFromData
from fedrepro.config.targets import RunKey
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import PREPARED, Dataset, is_prepared, open_dataset, refuse_damage
from fedrepro.data.fetching.raw_files import DOWNLOADS, RECORD
from fedrepro.data.fetching.weights import fetch_weights
from fedrepro.data.partition.partition import Partition
from fedrepro.data.prepare import prepare as prepare_dataset
from fedrepro.provenance import arithmetic, fingerprint, inputs, numerics
from fedrepro.report.pages.answers import answers_of, cells_of_runs, headline, lines_of
from fedrepro.report.papers.published import Published
from fedrepro.run import assembly, cards, input_artifacts, runner, shared_prefix, standing
from fedrepro.run.disk_space import space_for_models
from fedrepro.run.results import DONE, read_run
from fedrepro.run.runner import Progress, Report
from fedrepro.run.standing import partition_now
from fedrepro.run.tracking import tracker_of
from fedrepro.support.errors import COMMAND_LINE, UserError
from fedrepro.support.printing import decimals_for, fixed
from fedrepro.support.terminal import say
from fedrepro.support.typed_yaml import validate

SECONDS_BETWEEN_LINES = 5.0


def handle(arguments: argparse.Namespace) -> None:
    chosen = {"device": arguments.device, "executor": arguments.executor}
    overrides = validate(Overrides, chosen, COMMAND_LINE)
    carry_out(*requested(arguments, overrides), again=arguments.again)


def carry_out(workbench: Workbench, run: RunKey, again: bool = False) -> None:
    """Make what a run needs, then train.

    Args:
        again: also if the run is finished and current.

    Raises:
        UserError: for an invalid request.
    """
    name = run.words
    spec = workbench.spec_of(run)
    dataset, partition = _made_inputs(workbench, run, spec)
    if kept := space_for_models(spec, dataset, len(partition.train), workbench.root):
        say(f"{name}: {kept}")
    workbench = cards.with_place(workbench)  # only now: a run that waits for data needs none
    spec = workbench.spec_of(run)
    lines, played = progress_lines(name), 0
    tool = workbench.config.track
    tracker = tracker_of(tool, workbench.root, spec) if tool else None

    def report(progress: "Progress") -> None:
        nonlocal played
        played += 1
        lines(progress)
        if tracker and progress.scores:
            tracker.log(progress.round, progress.scores)

    finished = False
    try:
        manifest = runner.run(
            spec,
            dataset,
            partition,
            workbench.root / run.folder,
            fingerprint.of_code(spec),
            report,
            input_artifacts.load(workbench.root, spec, dataset, partition),
            shared_prefix.sharing_of(workbench, run),
            numerics.of_run(spec),
            replaces="all" if again else "others",
            note=lambda line: say(f"{name}: {line}"),
        )
        finished = True
    finally:
        if tracker:
            tracker.close(finished)
    _say_outcome(workbench, run, manifest, played)


def _made_inputs(workbench: Workbench, run: RunKey, spec: "RunSpec") -> "tuple[Dataset, Partition]":
    """Make what a run needs. Return its data set and partition.

    What needs no data is checked before any are fetched.
    """
    assembly.method_of(spec)
    arithmetic.refuse_without_gpu(spec)
    if spec.weights:
        fetch_weights(*spec.weights, workbench.config.data.archives)
    for source in spec.inputs.values():
        if isinstance(source, ArtifactFromData):
            _dataset(workbench, source.dataset)
        elif isinstance(source, RunSpec):
            standing.refuse_stale_input(workbench, source)
    dataset = _dataset(workbench, spec.setting.dataset)
    return dataset, _partition(workbench, run, dataset)


def _say_outcome(
    workbench: Workbench, run: RunKey, manifest: Mapping[str, Any], played: int
) -> None:
    """Print how a run ended and, at once, as the workflow's jobs share a terminal, its numbers.

    Args:
        played: the number of rounds that were played now.
    """
    name = run.words
    if manifest["status"] == "diverged":
        say(f"{name}: diverged in round {manifest['diverged_at']}: the loss is not finite")
    if stopped := manifest.get("stopped"):
        say(f"{name}: stopped after round {manifest['rounds_done']}: {stopped}")
    began = manifest.get("went_on_from")
    if began and played:
        say(f"{name}: continued from {began['method']} after round {began['round']}")
    if "privacy" in manifest:
        say(f"{name}: {_privacy(manifest['privacy'])}")
    before = "" if played else " before, by the same code and configuration on the same data"
    verdicts = _verdicts(workbench, run)
    numbers = "" if verdicts else _numbers(workbench, run) or _unread(workbench, run)
    say("\n".join([f"{name}: {DONE}{before}, in {run.folder}{numbers}", *verdicts]))


def _privacy(spent: Mapping[str, Any]) -> str:
    epsilon = spent["epsilon"]
    if epsilon is None:
        why = "a single client, delta 1" if spent["delta"] == 1 else "there is no noise"
        return f"not private: {why}"
    return f"epsilon {epsilon:.3g} for delta {spent['delta']:.3g}, {spent['neighbours']}"


MOST_NUMBERS = 3  # in a run's last line


def _verdicts(workbench: Workbench, run: RunKey) -> list[str]:
    """The cells of printed tables that have the run, a line each; empty if there are none."""
    try:
        return [f"  {line}" for line in lines_of(workbench, run)]
    except Exception as error:  # of other files: this run is finished, and the workflow keeps it
        return [f"  no verdict: {_in_words(error)}"]


def _numbers(workbench: Workbench, run: RunKey) -> str:
    """The first few numbers that tables of its experiment file take from a run, in words."""
    system = run.setting.partition("/")[0]
    try:
        uses = cells_of_runs(workbench, Published(), {run}, only=system).get(run, [])
        answers = headline(answers_of(read_run(workbench.root, run), uses))
    except Exception as error:
        return f"; no numbers: {_in_words(error)}"
    numbers = [
        f"{answer.use.table}: {answer.words} "
        f"{fixed(answer.value, decimals_for([answer.value]))} {answer.unit}".rstrip()
        for answer in answers[:MOST_NUMBERS]
    ]
    if more := len(answers[MOST_NUMBERS:]):
        numbers.append(f"and {more} more")
    return "".join(f"; {number}" for number in numbers)


def _in_words(error: Exception) -> str:
    kind = "" if isinstance(error, UserError) else f"internal error: {type(error).__name__}: "
    return f"{kind}{error}"


def _unread(workbench: Workbench, run: RunKey) -> str:
    """The seeds that tables and figures read, in words, if this one is not among them; else ""."""
    seeds = workbench.seeds_of(run.setting, run.method, SCALES)
    if not seeds or run.seed in seeds:
        return ""
    named = ", ".join(map(str, sorted(seeds)))
    return f"; no table or figure reads seed {run.seed}: they read {named} (`seeds`)"


def prepare(workbench: Workbench, run: RunKey) -> None:
    """Make the data and the partition of a run, if they are missing."""
    _partition(workbench, run, _dataset(workbench, workbench.setting(run.setting).dataset))


def progress_lines(name: str) -> "Report":
    """A callback that prints a line every few seconds: round, speed, time left, last accuracy."""
    printed = 0.0

    def show(progress: "Progress") -> None:
        nonlocal printed
        now = time.monotonic()
        last = progress.round == progress.rounds
        if now - printed < SECONDS_BETWEEN_LINES and not last:
            return
        printed = now
        left = (
            ""
            if last or progress.seconds_left is None
            else f", {_span(progress.seconds_left)} left"
        )
        # NaN before the first evaluation, and where predictions are neither right nor wrong.
        known, loss = math.isfinite(progress.accuracy), progress.scores.get("test_loss", math.nan)
        score = f", loss {loss:.4g}" if math.isfinite(loss) else ""
        whose = "clients' " if progress.of_clients else ""
        score = f", {whose}accuracy {progress.accuracy:.2%}" if known else score
        say(
            f"{name}: round {progress.round} of {progress.rounds}, "
            f"{progress.rounds_per_second:.2f} rounds/s{left}{score}"
        )

    return show


def _dataset(workbench: Workbench, name: str) -> "Dataset":
    prepared = is_prepared(name, workbench.root / PREPARED)
    if not prepared:
        say(f"{name}: preparing")
    # `prepare` does nothing when the catalogue entry and the raw files are unchanged. Prepared data
    # are kept when the raw files are gone.
    if not prepared or (workbench.root / DOWNLOADS / name / RECORD).exists():
        prepare_dataset(name, workbench.datasets[name], workbench.config.data.archives)
    refuse_damage(name, workbench.root / PREPARED)
    return open_dataset(name, workbench.root / PREPARED)


def _partition(workbench: Workbench, run: RunKey, dataset: "Dataset") -> "Partition":
    """The run's partition, made (again) if there is none as it would be made now."""
    setting = workbench.setting(run.setting)
    path = workbench.root / setting.partition_path(run.seed)
    stored = partition_now(workbench, setting, run.seed, dataset)
    if not stored.held or stored.differences:
        if stored.differences:
            say(f"{setting.partition_path(run.seed)}: made again: {stored.differences[0]}")
        inputs.make_partition_of(setting, run.seed, dataset, workbench.plugins).save(path)
    partition = Partition.load(path)
    if warning := partition.warning(dataset.meta.get("class_names", ())):
        say(warning)
    return partition


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
