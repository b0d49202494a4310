"""What Snakemake makes again although neither its records nor the files' times say so.

Snakemake knows of a file's configuration and code only what it recorded in ``.snakemake`` when it
made the file. Without records, or with results from elsewhere, it takes any file for today's. So a
run's manifest and a data set's meta.json are asked themselves, and a table, page or analysis
without a record is made again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.data.catalogue.catalogue import digest_of, find_dataset
from fedrepro.data.dataset import PREPARED, read_meta
from fedrepro.support.errors import UserError, one_line
from fedrepro.workflow.graph import Graph
from fedrepro.workflow.recorded import has_record, why_not_today

UNRECORDED = "it is not recorded how the present one was made"

Check = Callable[[Any], list[str]]  # an input function of a rule that finds no inputs


class Again:
    """Finds outputs to make again while Snakemake asks rules for their inputs.

    Args:
        workflow: Snakemake's.

    Attributes:
        reasons: output -> in words, why it is made again.
    """

    def __init__(self, graph: Graph, workflow: Any) -> None:
        self.reasons: dict[str, str] = {}
        self._graph = graph
        self._workflow = workflow

    def run(self, wildcards: Any) -> list[str]:
        """Checks a run's manifest."""
        run = RunKey(wildcards.setting, wildcards.method, int(wildcards.seed))
        with one_line():
            why = why_not_today(self._graph.bench, run)
        return self._checked(run.folder / "manifest.json", why)

    def data(self, wildcards: Any) -> list[str]:
        """Checks from which catalogue entry a data set was prepared."""
        folder = PREPARED / wildcards.dataset
        with one_line():
            why = _why_not_prepared(self._graph, folder)
        return self._checked(folder / "meta.json", why)

    def unrecorded(self, output: str) -> Check:
        """Checks that Snakemake has a record of an output, such as ``results/{study}.json``."""

        def check(wildcards: Any) -> list[str]:
            path = Path(output.format(**dict(wildcards.items())))
            known = not path.exists() or has_record(Path(), path)
            return self._checked(path, "" if known else UNRECORDED)

        return check

    def _checked(self, output: Path, why: str) -> list[str]:
        if why and self._workflow.is_main_process:
            self.reasons[str(output)] = why
            self._workflow.dag.forcefiles.add(str(output))
        return []


def _why_not_prepared(graph: Graph, folder: Path) -> str:
    try:
        meta = read_meta(graph.bench.root / folder)
    except UserError as error:
        return str(error)
    spec = find_dataset(folder.name, graph.bench.datasets)
    same = meta is None or meta.get("entry") == digest_of(spec)
    return "" if same else "made from another catalogue entry"
