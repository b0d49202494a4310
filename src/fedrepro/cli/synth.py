"""``fedrepro synth``: export the synthetic sets of runs as data sets."""

import argparse
from pathlib import Path

from fedrepro.analysis.finished import open_run
from fedrepro.analysis.quality_of_run import synthetic_of
from fedrepro.cli.arguments import refuse_existing
from fedrepro.cli.requested import requested
from fedrepro.report.datasheet import write_export
from fedrepro.run import cards
from fedrepro.support.files import atomic_folder
from fedrepro.support.locks import exclusive_lock


def make_export(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.to
    workbench, run = requested(arguments)
    refuse_existing("--to", folder)
    opened = open_run(cards.with_place(workbench), run)
    made = synthetic_of(opened)
    images = opened.plan.scaling.to_bytes(made.x).cpu().numpy()
    with exclusive_lock(folder), atomic_folder(folder) as temporary:
        labels = made.y.cpu().numpy()
        write_export(temporary, images, labels, opened.record, opened.dataset.meta)
    print(folder)
