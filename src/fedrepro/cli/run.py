"""``fedrepro run``: one run, called by the workflow or by hand."""

import argparse
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedrepro.config.config_file import Overrides
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.values import SCALES, Scalar
from fedrepro.config.workbench import Workbench
from fedrepro.support.errors import UserError, bad_value
from fedrepro.support.terminal import say
from fedrepro.support.typed_yaml import read_value, validate

if TYPE_CHECKING:
    from fedrepro.config.run_spec import RunSpec
    from fedrepro.data.dataset import Dataset
    from fedrepro.data.partition.partition import Partition
    from fedrepro.run.runner import Progress, Report

SECONDS_BETWEEN_LINES = 5.0


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "run",
        help="train one method in one setting with one seed",
        description="Train one method in one setting with one seed, and write the same files as "
        "the workflow. Missing data and partitions are made first. An interrupted run resumes from "
        "its last checkpoint; a finished run is kept if nothing has changed.",
        epilog="Example: fedrepro run ima/fmnist-shards2-demo ima+fedprox --seed 1 --set mu=0.1",
    )
    add_run(parser)
    parser.add_argument(
        "--executor",
        help="auto, sequential, parallel or vectorised (default: from config/config.yaml)",
    )
    parser.add_argument(
        "--device", help="cpu, cuda or cuda:<number> (default: from config/config.yaml)"
    )
    parser.add_argument(
        "--again", action="store_true", help="train again even if the run is finished and current"
    )
    parser.set_defaults(handler=handle)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a run."""
    parser.add_argument("setting", metavar="SETTING", help="such as ima/fmnist-shards2-demo")
    parser.add_argument("method", metavar="METHOD", help="such as fedprox or ima+fedprox+fedadam")
    parser.add_argument("--seed", type=int, required=True, help="a whole number of at least 0")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a hyperparameter of the method, such as mu=0.1 or fedprox.mu=0.1; may be repeated. "
        "The run is filed as a variant of the method, such as fedprox_mu0.1",
    )


def requested(
    arguments: argparse.Namespace, overrides: Overrides | None = None
) -> tuple[Workbench, RunKey]:
    """The run that :func:`add_run`'s arguments name.

    Raises:
        UserError: for an invalid setting, seed or hyperparameter.
    """
    require_seed("--seed", arguments.seed)
    workbench = load(overrides=overrides)
    setting, method = workbench.setting(arguments.setting), arguments.method
    if values := values_of(arguments.set):
        workbench, method = workbench.with_variant(setting, method, values)
    return workbench, RunKey(setting.name, method, arguments.seed)


def values_of(texts: list[str]) -> dict[str, Scalar]:
    """The names and values that ``--set`` gives."""
    values: dict[str, Scalar] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals or key in values:
            raise bad_value("the command line", "--set", text, "NAME=VALUE, each name once")
        values[key] = read_value(value, "the command line", f"--set {key}")
    return values


def require_seed(key: str, seed: int) -> None:
    """Raise UserError unless ``seed`` is in [0, 2**32)."""
    if not 0 <= seed < 2**32:
        raise bad_value("the command line", key, seed, "a whole number from 0 to 4294967295")


def handle(arguments: argparse.Namespace) -> None:
    chosen = {"device": arguments.device, "executor": arguments.executor}
    overrides = validate(Overrides, chosen, "the command line")
    carry_out(*requested(arguments, overrides), again=arguments.again)


def carry_out(workbench: Workbench, run: RunKey, again: bool = False) -> None:
    """Make what a run needs, then train.

    Args:
        again: also if the run is finished and current.

    Raises:
        UserError: for an invalid request.
    """
    from fedrepro.provenance import fingerprint, numerics
    from fedrepro.run import cards, input_artifacts, runner, shared_prefix
    from fedrepro.run.disk_check import disk_of_kept
    from fedrepro.run.tracking import tracker_of

    name = f"{run.setting} {run.method} seed {run.seed}"
    spec = workbench.run_spec(run.setting, run.method, run.seed)
    dataset, partition = _made_inputs(workbench, run, spec)
    kept = disk_of_kept(spec, dataset, len(partition.train))
    if kept.models:
        say(f"{name}: {kept.refused_beyond(workbench.root)}")
    workbench = cards.with_place(workbench)  # only now: a run that waits for data needs none
    spec = workbench.run_spec(run.setting, run.method, run.seed)
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
            shared_prefix.sharing_of(workbench, run, lambda line: say(f"{name}: {line}")),
            numerics.of_run(spec),
            replaces="all" if again else "others",
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
    from fedrepro.config.run_spec import ResolvedData, RunSpec
    from fedrepro.data.fetching.weights import fetch_weights
    from fedrepro.provenance import arithmetic
    from fedrepro.run import assembly, standing

    assembly.compose(spec)
    arithmetic.refuse_without_gpu(spec)
    if spec.weights:
        fetch_weights(*spec.weights, workbench.config.data.archives)
    for source in spec.given.values():
        if isinstance(source, ResolvedData):
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
    name = f"{run.setting} {run.method} seed {run.seed}"
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
    say("\n".join([f"{name}: done{before}, in {run.folder}{numbers}", *verdicts]))


def _privacy(spent: Mapping[str, Any]) -> str:
    epsilon = spent["epsilon"]
    if epsilon is None:
        return "not private: there is no noise"
    return f"epsilon {epsilon:.3g} for delta {spent['delta']:.3g}, {spent['neighbours']}"


MOST_NUMBERS = 3  # in a run's last line


def _verdicts(workbench: Workbench, run: RunKey) -> list[str]:
    """The cells of printed tables that have the run, a line each; empty if there are none."""
    from fedrepro.report.cells.of_run import lines_of

    try:
        return [f"  {line}" for line in lines_of(workbench, run)]
    except UserError as error:  # of other files: this run is finished
        return [f"  no verdict: {error}"]


def _numbers(workbench: Workbench, run: RunKey) -> str:
    """The first few numbers that tables of its experiment file take from a run, in words."""
    from fedrepro.report.pages.answers import answers_of, cells_of_runs, headline
    from fedrepro.report.papers.published import Published
    from fedrepro.run.results import read_run

    system = run.setting.partition("/")[0]
    uses = cells_of_runs(workbench, Published(), {run}, only=system).get(run, [])
    answers = headline(answers_of(read_run(workbench.root, run), uses))[:MOST_NUMBERS]
    numbers = (
        f"{answer.table}: {answer.words} {answer.value:.2f} {answer.unit}".rstrip()
        for answer in answers
    )
    return "".join(f"; {number}" for number in numbers)


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
        score = f", accuracy {progress.accuracy:.2%}" if known else score
        say(
            f"{name}: round {progress.round} of {progress.rounds}, "
            f"{progress.rounds_per_second:.2f} rounds/s{left}{score}"
        )

    return show


def _dataset(workbench: Workbench, name: str) -> "Dataset":
    from fedrepro.data.dataset import PREPARED, open_dataset, refuse_damage
    from fedrepro.data.fetching.raw_files import DOWNLOADS, RECORD
    from fedrepro.data.prepare import prepare

    prepared = (workbench.root / PREPARED / name / "meta.json").exists()
    if not prepared:
        say(f"{name}: preparing")
    # `prepare` does nothing when the catalogue entry and the raw files are unchanged. Prepared data
    # are kept when the raw files are gone.
    if not prepared or (workbench.root / DOWNLOADS / name / RECORD).exists():
        prepare(name, workbench.datasets[name], workbench.config.data.archives)
    refuse_damage(name, workbench.root / PREPARED)
    return open_dataset(name, workbench.root / PREPARED)


def _partition(workbench: Workbench, run: RunKey, dataset: "Dataset") -> "Partition":
    """The run's partition, made (again) if there is none as it would be made now."""
    from fedrepro.data.partition.partition import Partition
    from fedrepro.provenance import inputs
    from fedrepro.run.standing import partition_now

    setting = workbench.setting(run.setting)
    path = workbench.root / setting.partition_path(run.seed)
    stored = partition_now(workbench, setting, run.seed, dataset)
    if not stored.held or stored.differences:
        if stored.differences:
            say(f"{setting.partition_path(run.seed)}: made again: {stored.differences[0]}")
        inputs.make(setting, run.seed, dataset, workbench.plugins).save(path)
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
