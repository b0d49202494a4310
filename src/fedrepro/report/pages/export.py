"""A table for a paper's appendix: its numbers, its runs, and what to cite for it."""

import json

import fedrepro
from fedrepro.config.targets import TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import ComputedTable, best_of_rows
from fedrepro.report.pages.downloads import as_bibtex, as_csv, as_latex, rows_as_csv
from fedrepro.report.pages.run_files import RUNS_HEADER, identity_of
from fedrepro.report.pages.table import order_of
from fedrepro.report.pages.templates import repository, software
from fedrepro.report.papers.published import Published
from fedrepro.support.names import Composition


def texts_of(target: TableTarget, table: ComputedTable, published: Published) -> dict[str, str]:
    """A table as CSV and LaTeX, by the ending of the file."""
    system = published.systems.get(table.system)
    own, shown, folded = order_of(table, system.proposes if system else ())
    columns = [*shown, *folded]
    best = best_of_rows(target, table, columns)
    latex = as_latex(table, columns, system.paper if system else "", own, best)
    return {".csv": as_csv(table), ".tex": latex}


def appendix_of(
    workbench: Workbench, target: TableTarget, published: Published, table: ComputedTable
) -> dict[str, str]:
    """The files of a table's export, by name."""
    over = ("finished", "diverged", "left out")
    records = table.records(workbench.root, lambda run: run.state in over)
    files = {
        f"{target.item}{end}": text for end, text in texts_of(target, table, published).items()
    }
    files["runs.csv"] = rows_as_csv(RUNS_HEADER, map(identity_of, records))
    manifests = [{**record.manifest, "folder": str(record.folder)} for record in records]
    files["manifests.json"] = json.dumps(manifests, indent=1) + "\n"
    files["references.bib"] = bibliography_of(workbench, target, published)
    return files


def bibliography_of(workbench: Workbench, target: TableTarget, published: Published) -> str:
    """BibTeX of the paper, the methods, the data and this package; comments for the rest."""
    works: dict[str, str] = {}
    if paper := published.references.of_paper(target.system):
        works[paper[0]] = as_bibtex(paper[0], paper[1].fields)
    elif about := published.systems.get(target.system):
        works[target.system] = as_bibtex(target.system, {"title": about.paper})
    methods = {method: cell.setting for cell in target.cells for method in cell.methods}
    for method, name in methods.items():
        setting, experiment = workbench.setting(name), workbench.experiments[name.split("/")[0]]
        for part in Composition.parse(method).parts:
            base, _ = experiment.part(setting, part.name)
            key, work = published.references.of_method(base) or (base, None)
            works[key] = as_bibtex(key, work.fields) if work else f"% {base}: no paper is known\n"
    for name in dict.fromkeys(workbench.setting(cell.setting).dataset for cell in target.cells):
        data = workbench.datasets[name]
        said = "" if data.citation == "none" else f"{data.citation} "
        fields = {"title": data.title, "note": f"{said}Licence: {data.licence}"}
        works[name] = as_bibtex(name, fields)
    package = {"title": "fedrepro", "version": fedrepro.__version__}
    package |= {"note": f"commit {commit}"} if (commit := software().commit) else {}
    package |= {"url": address} if (address := repository()) else {}
    works["fedrepro"] = as_bibtex("fedrepro", package)
    return "\n".join(works.values())
