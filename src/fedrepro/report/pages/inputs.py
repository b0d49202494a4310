"""Runs that are inputs of others: they also have pages and costs, although no table names them."""

from collections.abc import Iterable

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import ArtifactFromRun
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench


def inputs_of(workbench: Workbench, run: RunKey) -> dict[str, RunKey]:
    """The runs that a run takes as inputs, by requirement, without files and samples."""
    setting = workbench.find_setting(run.setting)
    if setting is None or not setting.inputs:
        return {}
    sources = workbench.spec_of(run).inputs
    return {need: source.key for need, source in sources.items() if isinstance(source, RunSpec)}


def are_inputs(workbench: Workbench, runs: Iterable[RunKey]) -> bool:
    """Return True if any of these runs, with any seed, is an input of another run."""
    sources = {
        (f"{setting.name.partition('/')[0]}/{source.setting}", source.method)
        for setting in workbench.settings.values()
        for source in setting.inputs.values()
        if isinstance(source, ArtifactFromRun)
    }
    return any((run.setting, run.method) in sources for run in runs)


def with_inputs(workbench: Workbench, runs: Iterable[RunKey]) -> list[RunKey]:
    """Runs, followed by all their direct and indirect inputs, each once."""
    known = dict.fromkeys(runs)
    waiting = list(known)
    while waiting:
        given = inputs_of(workbench, waiting.pop()).values()
        new = [run for run in given if run not in known]
        known.update(dict.fromkeys(new))
        waiting.extend(new)
    return list(known)
