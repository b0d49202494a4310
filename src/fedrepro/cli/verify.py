"""``fedrepro verify``: check a results tree for changed, missing or damaged files."""

import argparse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fedrepro.config.loading import load
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.methods.files import part_files
from fedrepro.run import digests
from fedrepro.run.integrity import Check
from fedrepro.run.landed_runs import ORDER
from fedrepro.run.results import runs_in
from fedrepro.run.standing import standing_of
from fedrepro.support import commands
from fedrepro.support.errors import UserError, bad_argument, bad_value
from fedrepro.support.names import Composition
from fedrepro.support.terminal import say
from fedrepro.workflow.graph import Graph
from fedrepro.workflow.rerun_checks import noted_definition

RESULTS, REPORTS, CONFIG = Path("results"), Path("reports"), Path("config/experiments")

MOST = 10  # runs of a kind that are listed


def handle(arguments: argparse.Namespace) -> int:
    """Return 1 if there are faults, else 0."""
    if arguments.accept is not None:
        _accept(arguments.accept)
        return 0
    checks, wrong = [Check(folder, arguments.full) for folder in _folders(arguments)], 0
    for check in checks:
        for fault in check.faults():
            wrong += 1
            print(fault, flush=True)
    counts = [item for check in checks for item in check.counts.items()]
    if arguments.folder is not None and not counts and not _is_tree(arguments.folder):
        wanted = "results or reports, or a copy of one"
        raise bad_argument("FOLDER", str(arguments.folder), wanted)
    looked_at = ", ".join(f"{number:,} {what}" for what, number in counts)
    verdict = f"{wrong:,} wrong" if wrong else "nothing is wrong"
    say(f"fedrepro: {looked_at or 'nothing to check'}: {verdict}")
    if papers := ", ".join(system for check in checks for system in check.unrecorded):
        line = f"without landed.json, so printed numbers are not checked: {papers}"
        say(f"fedrepro: {line} (`fedrepro verify --accept PAPER` records them)")
    if papers := ", ".join(system for check in checks for system in check.unlisted):
        say(f"fedrepro: {ORDER} does not list, so nothing shows or judges: {papers}")
    shown = RESULTS in [check.results for check in checks]
    for line in _other_results(RESULTS) if shown else ():
        say(f"fedrepro: {line}")
    return int(wrong > 0)


def _folders(arguments: argparse.Namespace) -> list[Path]:
    """The folders to check: the given one, or results and this workbench's reports."""
    if arguments.folder is not None:
        return [arguments.folder]
    own = [REPORTS] if (REPORTS / "papers").is_dir() else []
    return own if own and not RESULTS.is_dir() else [RESULTS, *own]


def _is_tree(folder: Path) -> bool:
    """Return True for a folder with one that commands write in results or reports, or with papers.

    A workbench may have a folder data, too, of its user's files.
    """
    written = (Path(name) for name in commands.written())
    trees = {str(RESULTS), str(REPORTS)}
    names = {"logs", "papers"}.union(
        *(path.parts[1:2] for path in written if path.parts[0] in trees)
    )
    is_workbench = any((folder / name).is_dir() for name in {*trees, "config"})
    return not is_workbench and any((folder / name).is_dir() for name in names)


def _accept(system: str) -> None:
    """Record a paper's folder as it is, and print what that changes.

    Raises:
        UserError: if there is no such paper in this workbench, or one of its files is damaged.
    """
    known = digests.papers_in(Path())
    if system not in known:
        raise bad_argument("--accept", system, "a paper in reports/papers", known)
    before = list(digests.faults(Path(), system)) if digests.is_recorded(Path(), system) else []
    digests.record_all(Path(), system)
    print(*before, sep="\n", end="\n" * bool(before))
    print(f"reports/papers/{system}/{digests.FILE}: written")


def _other_results(results: Path) -> Iterator[str]:
    """Yields lines about runs and tables that are not today's, or are from another machine."""
    if not CONFIG.exists():
        return

    try:
        bench = load()
    except UserError as error:  # which says nothing against the files
        yield f"runs are not compared with today's configuration: {error}"
        return
    stale: list[str] = []
    elsewhere: list[str] = []
    unknown: list[str] = []
    known = part_files(bench.plugins)
    for _, run in runs_in(results / "runs"):
        named = f"{run.setting} {run.method} --seed {run.seed}"
        try:
            for part in Composition.parse(bench.spec_of(run).composition).names:
                if part not in known:
                    raise bad_value("method", "name", part, "a name that `fedrepro methods` lists")
            standing = standing_of(bench, run)
        except UserError as error:
            unknown.append(f"{named}: {error}")
            continue
        for words, lines in ((standing.why, stale), (standing.elsewhere, elsewhere)):
            if words:
                lines.append(f"{named}: {words}")
    tables = sorted({str(path) for path in _redefined(bench)})
    for lines, kind, what in (
        (stale, "run", "would be made again"),
        (unknown, "run", "of a setting or a method that is not here"),
        (elsewhere, "run", "of other packages or of another machine, which are kept"),
        (tables, "table", "of another definition, or of other code, than today's"),
    ):
        if lines:
            yield f"{len(lines):,} {kind}{'s' * (len(lines) > 1)} {what}:"
            yield from (f"  {line}" for line in lines[:MOST])
            yield from [f"  and {len(lines) - MOST:,} more"] if lines[MOST:] else []


def _redefined(bench: Workbench) -> Iterator[Path]:
    """Yields tables that were made by another definition or by other code than today's."""
    graph = Graph(bench)
    for table in (each for scale in SCALES for each in bench.tables(scale).values()):
        noted = noted_definition(table.path)
        with suppress(UserError):  # of a plug-in, which says nothing against the files
            if noted is not None and noted != graph.definition_of(table):
                yield table.path
