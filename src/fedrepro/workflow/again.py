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
from fedrepro.data.dataset import PREPARED
from fedrepro.provenance.identity import in_words
from fedrepro.run.standing import prepared_differences, standing_of
from fedrepro.support.errors import exit_on_user_error
from fedrepro.workflow.graph import Graph
from fedrepro.workflow.records import has_record

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
        with exit_on_user_error():
            why = standing_of(self._graph.bench, run).why
        return self._checked(run.folder / "manifest.json", why)

    def data(self, wildcards: Any) -> list[str]:
        """Checks from which catalogue entry a data set was prepared."""
        folder = PREPARED / wildcards.dataset
        with exit_on_user_error():
            why = in_words(prepared_differences(self._graph.bench, folder.name))
        return self._checked(folder / "meta.json", why)

    def partition(self, wildcards: Any) -> list[str]:
        """Checks from which code and labels a partition was made."""
        with exit_on_user_error():
            path, why = self._graph.stale_partition(wildcards)
        return self._checked(path, why)

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
