"""``fedrepro synth``: export the synthetic sets of runs as data sets."""

import argparse
from pathlib import Path

from fedrepro.cli.run import add_run, requested
from fedrepro.support.errors import bad_value


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    synth = subparsers.add_parser(
        "synth",
        help="export the synthetic sets of runs",
        description="Methods such as FedEvg produce a labelled data set, which can be exported.",
    )
    actions = synth.add_subparsers(title="actions", metavar="ACTION", required=True)
    export = actions.add_parser(
        "export",
        help="write a synthetic set to a folder: images, labels, datasheet",
        description="Write a finished run's synthetic set to a folder: images.npz (no pickle), "
        "sheet.png, datasheet.json and README.md with its settings, rounds, quality (if `fedrepro "
        "quality` has been run) and privacy notes. The folder can be used as a data set of the "
        "kind `synthetic`.",
        epilog="Example: fedrepro synth export fedevg/digits-demo fedevg --seed 1 --to digits",
    )
    add_run(export)
    export.add_argument("--to", metavar="FOLDER", type=Path, required=True, help="a new folder")
    export.set_defaults(handler=make_export)


def make_export(arguments: argparse.Namespace) -> None:
    from fedrepro.analysis.finished import open_run
    from fedrepro.analysis.quality_of_run import synthetic_of
    from fedrepro.report.datasheet import write_export
    from fedrepro.run import cards
    from fedrepro.support.files import atomic_folder
    from fedrepro.support.locks import exclusive_lock

    folder: Path = arguments.to
    workbench, run = requested(arguments)
    if folder.exists():
        raise bad_value("the command line", "--to", str(folder), "a folder that does not exist yet")
    opened = open_run(cards.with_place(workbench), run)
    made = synthetic_of(opened)
    images = opened.plan.scaling.to_bytes(made.x).cpu().numpy()
    with exclusive_lock(folder), atomic_folder(folder) as temporary:
        labels = made.y.cpu().numpy()
        write_export(temporary, images, labels, opened.record, opened.dataset.meta)
    print(folder)
