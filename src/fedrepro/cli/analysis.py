"""Analyses of runs: ``fedrepro landscape``, ``quality``, ``study``, ``synth`` and papers' own."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrepro.analysis.finished import open_run
from fedrepro.analysis.kept_models import open_kept
from fedrepro.analysis.landscape_of_run import landscape_of, landscape_through
from fedrepro.analysis.quality_of_run import quality_of, synthetic_of
from fedrepro.analysis.studies import make
from fedrepro.cli.arguments import new_folder, refuse_existing, requested, require_at_least
from fedrepro.cli.console import Progress, progress_bar
from fedrepro.config.figures import Grid
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey, study_path
from fedrepro.config.workbench import Workbench
from fedrepro.measures import registry
from fedrepro.provenance.fingerprint import of_text
from fedrepro.report.datasheet import write_export
from fedrepro.run import cards
from fedrepro.run.results import PAIRS, read_run
from fedrepro.run.store import save_tree
from fedrepro.support import checksummed_json, commands
from fedrepro.support.files import sha256_of
from fedrepro.support.terminal import say
from fedrepro.workflow.graph import Graph
from fedrepro.workflow.rerun_checks import note_definition


def make_landscape(arguments: argparse.Namespace) -> None:
    workbench, run = requested(arguments)
    workbench = cards.with_place(workbench)
    if arguments.through is None:
        with progress_bar(run.words) as progress:
            result = landscape_of(workbench, run, progress)
        write_found(workbench.root, run.analysis("landscapes"), result)
        return
    require_at_least("--points", arguments.points, 2)
    require_at_least("--samples", arguments.samples, 1)
    words = [_short(each) for each in arguments.through]
    part = Grid(points=arguments.points, samples=arguments.samples).part(words)
    path = run.analysis("landscapes", part)
    finished = open_kept(workbench, run)
    with progress_bar(run.words) as progress:
        result = landscape_through(
            finished,
            arguments.through,
            arguments.points,
            arguments.samples,
            arguments.bfloat16,
            workbench.root / path.with_suffix(".partial"),
            progress,
        )
    write_found(workbench.root, path, result)


def _short(word: str) -> str:
    """A model's name as part of a file name: for a model's file, a hash of its path."""
    return f"file.{of_text(word)[:8]}" if word.endswith(".safetensors") else word


def make_of_run(arguments: argparse.Namespace) -> None:
    """What a command's entry says that it ``computes`` for a run, and where it ``writes`` that."""
    workbench, run = requested(arguments)
    compute = commands.function(arguments.computes)
    with progress_bar(run.words) as progress:
        result = compute(cards.with_place(workbench), run, progress)
    write_found(workbench.root, run.analysis(Path(arguments.writes).parts[1]), result)


def make_study(arguments: argparse.Namespace) -> None:
    workbench = load()
    write_found(workbench.root, study_path(arguments.name), make(arguments.name))


def make_quality(arguments: argparse.Namespace) -> None:
    workbench, run = requested(arguments)
    with progress_bar(run.words) as progress:
        judge(workbench, run, progress)
    record = read_run(workbench.root, run)
    for measure in registry.SETS.values():
        for _, value in measure.quantity.series(record):
            say(f"{measure.words}: {value:.4g} {measure.unit}".rstrip())


def judge(workbench: Workbench, run: RunKey, progress: Progress = lambda share: None) -> None:
    """Evaluate the synthetic set of a finished run, and write what was found."""
    result, pairs = quality_of(cards.with_place(workbench), run, progress)
    path = run.analysis("quality")
    note_definition(workbench.root, path, Graph(workbench).evaluator(run))
    images = workbench.root / path.with_suffix(PAIRS)
    save_tree(images, pairs)
    write_found(workbench.root, path, {**result, "files": {images.name: sha256_of(images)}})


def make_export(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.to
    workbench, run = requested(arguments)
    refuse_existing("--to", folder)
    opened = open_run(cards.with_place(workbench), run)
    made = synthetic_of(opened)
    images = opened.plan.networks.scaling.to_bytes(made.x).cpu().numpy()
    with new_folder("--to", folder) as temporary:
        labels = made.y.cpu().numpy()
        write_export(temporary, images, labels, opened.record, opened.dataset.meta)
    print(folder)


def write_found(root: Path, path: Path, result: Mapping[str, Any]) -> None:
    """Write the result as JSON to a path relative to the root, and print it."""
    checksummed_json.write(root / path, result, checksummed_json.of_results(path))
    print(root / path)
