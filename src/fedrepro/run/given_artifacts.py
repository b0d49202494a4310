"""The artifacts that a run is given: as read from files, and as its method sees them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedrepro.config.run_spec import RunSpec
from fedrepro.data.tensors.samples import Scaling
from fedrepro.engine import tree
from fedrepro.engine.context import LoadedArtifact
from fedrepro.engine.method import SAMPLES
from fedrepro.engine.net import Net
from fedrepro.engine.tree import Tree
from fedrepro.models import registry as models
from fedrepro.run.store import refuse_other_constants
from fedrepro.support import papers
from fedrepro.support.plugins import Folders

Given = Mapping[str, LoadedArtifact]


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact that a run is given, as read from its file.

    Attributes:
        sha256: of its file, or of the selection of samples.
        tensors: of an artifact, or stored inputs ``{"x": [n, ...]}``.
        facts: the file's metadata; empty for the server's own data.
    """

    sha256: str
    tensors: Tree
    facts: Mapping[str, Any]


def loaded(stored: StoredArtifact, scaling: Scaling, device: str, own: Folders) -> LoadedArtifact:
    """An artifact as a method sees it: tensors on the run's device, and their network."""
    tensors = tree.apply(lambda leaf: leaf.to(device), stored.tensors)
    facts, net = stored.facts, None
    if facts and facts["part"] != SAMPLES:
        shape, outputs = tuple(facts["input_shape"]), facts["outputs"]
        module = models.build(facts["model"], shape, outputs, folders=own)
        part = module.get_submodule(facts["part"])
        whose = f"inputs: {facts['model']} {facts['part']}".rstrip()
        refuse_other_constants(part, tensors, facts, whose)
        net = Net(part.to(device), leaves=tensors)
        net.refuse_others(tensors, whose, each_client=facts["clients"] is not None)
    return LoadedArtifact(tensors, net, facts.get("about", {}), scaling)


def given_to(
    spec: RunSpec, stored: Mapping[str, StoredArtifact], scaling: Scaling, clients: int
) -> Given:
    """A run's artifacts as its method sees them."""
    device = spec.execution.device
    given = {name: loaded(each, scaling, device, spec.plugins) for name, each in stored.items()}
    return changed(given, spec, clients)


def changed(given: Given, spec: RunSpec, clients: int) -> Given:
    """The artifacts, changed by the setting's keys that a paper's package implements."""
    setting = spec.setting
    for key in setting.keys_of_papers:
        change = papers.load("given", key).changed
        where = f"setting {setting.name}"
        given = change(given, getattr(setting, key), clients, spec.seed, where)
    return given
