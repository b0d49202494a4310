"""Open a finished run with its data, for analysis."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import PREPARED, Dataset, open_dataset, refuse_damage
from fedrepro.data.partition.partition import Partition
from fedrepro.data.tensors.samples import TensorSamples
from fedrepro.engine import tree
from fedrepro.engine.tree import Tree
from fedrepro.provenance.identity import in_words, other_numbers
from fedrepro.run.assembly import Plan, make_plan, method_of
from fedrepro.run.input_artifacts import MODEL, data_of_plan, load, run_with_model
from fedrepro.run.replayed import differences_of
from fedrepro.run.results import RunRecord
from fedrepro.run.store import load_tree
from fedrepro.support.errors import refusal


@dataclass(frozen=True)
class Finished:
    """A run's inputs and its artifact.

    Attributes:
        left: its artifact, on the run's device.
        facts: the artifact's metadata.
    """

    spec: RunSpec
    record: RunRecord
    dataset: Dataset
    partition: Partition
    plan: Plan
    left: Tree
    facts: Mapping[str, Any]

    @property
    def run(self) -> RunKey:
        return self.record.run

    @property
    def shared_model(self) -> Tree:
        """The shared model that it left.

        Raises:
            UserError: if it left something else, such as samples or a part of its model.
        """
        if self.facts.get("part") != "" or self.facts["clients"] is not None:
            raise refusal(self.record.folder, f"{self.spec.method} has no shared model")
        return self.left

    @property
    def tested_on(self) -> TensorSamples:
        """The data set's test samples, or all samples that clients hold out."""
        if self.plan.test is not None:
            return self.plan.test
        assert self.plan.client_tests is not None, "a run is scored on one of the two"
        return self.plan.client_tests.whole


def open_run(workbench: Workbench, run: RunKey) -> Finished:
    """Open a finished run of this machine.

    Raises:
        UserError: if the run, its data or its partition is missing or has changed.
    """
    spec = workbench.run_spec(run.setting, run.method, run.seed)
    method_of(spec)  # raises UserError for an unknown method
    setting = workbench.setting(run.setting)
    record = run_with_model(workbench.root, run)
    refuse_damage(setting.dataset, workbench.root / PREPARED)
    dataset = open_dataset(setting.dataset, workbench.root / PREPARED)
    torch.set_num_threads(spec.execution.threads)
    partition = Partition.load(workbench.root / setting.partition_path(run.seed))
    given = load(workbench.root, spec, dataset, partition)
    plan = make_plan(spec, dataset, partition, given)
    data = data_of_plan(plan, dataset, partition, given)
    listed = other_numbers(differences_of(record, spec, data))
    # A model is read whatever code trained it: its analysis has an identity of its own.
    if why := in_words(change for change in listed if change.about in ("configuration", "data")):
        raise refusal(run.folder, f"{why}: {run.command}")
    saved, facts = load_tree(workbench.root / run.folder / MODEL)
    left = tree.apply(lambda leaf: leaf.to(plan.federation.context.net.device), saved)
    return Finished(spec, record, dataset, partition, plan, left, facts)
