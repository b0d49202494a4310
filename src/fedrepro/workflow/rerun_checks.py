"""Have outputs made again that are out of date though Snakemake's records do not show it.

Snakemake knows of a file's configuration and code only what it recorded in ``.snakemake`` when it
made the file. Without records, or with results from elsewhere, it takes any file for current unless
an input is newer: so is any that was copied later. So runs, data and partitions say themselves if
they are current, whatever the times of their files, and a table, page or analysis without a record
is made again.
"""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import PREPARED
from fedrepro.provenance.identity import in_words
from fedrepro.run.derived_files import changed_sources
from fedrepro.run.results import seal_of_run, seals_of
from fedrepro.run.standing import prepared_differences, standing_of
from fedrepro.support import checksummed_json
from fedrepro.support.errors import exit_on_user_error
from fedrepro.support.files import write_atomically
from fedrepro.workflow import snakemake_patches as patches
from fedrepro.workflow.graph import OUTPUTS_OF_A_RUN, Graph

UNRECORDED = "it is not recorded how the present one was made"
REDEFINED = "it is of another definition in the experiment file, or of other code"
DEFINITIONS = Path(".snakemake/fedrepro-definitions")
OF_OTHERS = "it is of other results than those that are there"
TABLES = Path("results/tables")

Check = Callable[[Any], list[str]]  # an input function of a rule that finds no inputs


class RerunChecks:
    """Input functions of rules that add no input: they force an output that is stale.

    Snakemake asks for a job's inputs before it decides whether the job must run.

    Args:
        workflow: Snakemake's.

    Attributes:
        reasons: output -> in words, why it is made again.
    """

    def __init__(self, graph: Graph, workflow: Any) -> None:
        self.reasons: dict[str, str] = {}
        self._graph = graph
        self._workflow = workflow

    def stale_run(self, wildcards: Any) -> list[str]:
        """Ask a run's manifest."""
        run = RunKey.of_wildcards(wildcards)
        with exit_on_user_error():
            why = standing_of(self._graph.bench, run).why
        return self._decided(run.manifest, why)

    def stale_data(self, wildcards: Any) -> list[str]:
        """Ask a data set from which catalogue entry it was prepared."""
        folder = PREPARED / wildcards.dataset
        with exit_on_user_error():
            why = in_words(prepared_differences(self._graph.bench, folder.name))
        return self._decided(folder / "meta.json", why)

    def stale_partition(self, wildcards: Any) -> list[str]:
        """Ask a partition from which code and labels it was made."""
        with exit_on_user_error():
            path, why = self._graph.stale_partition(wildcards)
        return self._decided(path, why)

    def unrecorded(self, output: str) -> Check:
        """The check that Snakemake has a record of an output, such as ``results/{study}.json``.

        The record must be of the definition that the file is of, if it is known; and the file of
        the runs that are there, whatever their times: a result may have been copied with its own.
        """

        def check(wildcards: Any) -> list[str]:
            path = Path(output.format(**dict(wildcards.items())))
            why = ""
            if path.exists():
                record, noted = patches.read_record(Path(), path), noted_definition(path)
                if not record:
                    why = UNRECORDED
                elif noted is not None and not patches.was_recorded_with(record, noted):
                    why = REDEFINED
                elif _has_others(path):
                    why = OF_OTHERS
            return self._forced(path, why)

        return check

    def _decided(self, output: Path, why: str) -> list[str]:
        """Force an output that is stale; let nothing that Snakemake recorded decide on another."""
        if not why:
            patches.keep(str(output))
        return self._forced(output, why)

    def _forced(self, output: Path, why: str) -> list[str]:
        if why and self._workflow.is_main_process:
            self.reasons[str(output)] = why
            patches.force(self._workflow, str(output))
        return []


def _has_others(path: Path) -> bool:
    """Return True for a file of results that were replaced, and for a table that lacks some."""
    with suppress(OSError, ValueError, AttributeError):
        is_page = path.suffix == ".html"
        content = _note_on(path) if is_page else checksummed_json.parsed(path)
        seal_of = partial(seal_of_run, Path())
        made_since = (name for name in content.get("lacks", ()) if seal_of(RunKey.parse(name)))
        return any(changed_sources(content, seal_of)) or any(made_since)
    return False


def note_definition(root: Path, output: Path, definition: str, runs: Iterable[RunKey] = ()) -> None:
    """Note of which definition and runs a command has made a page, for the workflow's next call.

    Snakemake records the definition that it read when it started. If the experiment file has been
    edited since, or the command was given by hand, the file may be of another one.

    Args:
        runs: those that it shows, of which no file of results says so.
    """
    if (root / DEFINITIONS.parent).is_dir():
        note = {"definition": definition, "of": seals_of(root, runs)}
        with write_atomically(root / DEFINITIONS / output) as temporary:
            temporary.write_text(json.dumps(note), encoding="utf-8")


def _note_on(output: Path) -> Any:
    return json.loads((DEFINITIONS / output).read_text(encoding="utf-8"))


def noted_definition(output: Path) -> str | None:
    """Returns the definition that an output was made by; a table has it in its own file."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if output.is_relative_to(TABLES):
            known: str | None = checksummed_json.parsed(output).get("definition")
            return known
        return str(_note_on(output)["definition"])
    return None


def reasons_of(bench: Workbench, run: RunKey) -> list[str]:
    """Snakemake's reasons to make a run again, in words; none if it would not.

    This checks what Snakemake checks with the workflow's profiles (their ``rerun-triggers``), for
    one run and without its graph. It does not report that a run's inputs would be made again.

    Raises:
        SystemExit: for an unknown setting or method, as in the workflow.
    """
    root, graph = bench.root, Graph(bench)
    outputs = [run.folder / name for name in OUTPUTS_OF_A_RUN]
    missing = [path for path in outputs if not (root / path).exists()]
    if run.manifest in missing:
        return [f"{run.manifest} is missing"]
    if missing:
        files = ", ".join(path.name for path in missing)
        return [f"{files}: missing, which matters if another job or a target needs it"]
    if any(patches.has_begun(root, path) for path in outputs):
        return ["Snakemake's records say that the job that made it did not finish"]
    wildcards = SimpleNamespace(setting=run.setting, method=run.method, seed=str(run.seed))
    inputs = sorted([*graph.inputs_of_run(wildcards), *graph.parent_of_run(wildcards)])
    recorded = [patches.read_record(root, path).get("input") for path in outputs]
    if any(names not in (None, inputs) for names in recorded):
        return ["its list of inputs has changed"]
    why = standing_of(bench, run).why
    return [why] * bool(why)
