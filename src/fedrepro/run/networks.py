"""The networks of a run: its model, on its device and with its initial weights, and its task.

Among them are those of the artifacts that it is given, as read from files and as its method sees
them.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedrepro.check.own_functions import repeatable
from fedrepro.check.own_models import own_net, refuse_unaccepted
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import Setting
from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.fetching.weights import read_weights
from fedrepro.data.partition.partition import Partition
from fedrepro.data.readers.arrays import WHOLE, as_type
from fedrepro.data.readers.packing import ALONE, Packing
from fedrepro.data.tensors.samples import Scaling
from fedrepro.engine import tree
from fedrepro.engine.context import LoadedArtifact
from fedrepro.engine.evaluate import BATCH
from fedrepro.engine.losses import Loss, with_loss
from fedrepro.engine.method import SAMPLES, Method
from fedrepro.engine.modules import one_input
from fedrepro.engine.net import Net, Precision
from fedrepro.engine.task import TASKS, OfOutputs, Task
from fedrepro.engine.tree import Tree
from fedrepro.measures import registry as measures
from fedrepro.measures.base import Measure, Per
from fedrepro.models import registry as models
from fedrepro.run.store import refuse_other_constants
from fedrepro.support import papers, plugins
from fedrepro.support.errors import bad_value, refusal
from fedrepro.support.plugins import NONE, Folders
from fedrepro.support.rng import stream

FIRST = 1000  # samples, among which two that differ are looked for

MOST = 5 * 10**6  # numbers of samples, in a trial of a model

OF_IDS = ("recurrent", "transformer")  # families of models that take the ids of words


class Networks(NamedTuple):
    """A run's model and the other networks of its method.

    Attributes:
        weights_sha256: of the file with the initial weights; None if the run draws them.
        own_inputs: the type that a model of the user's own gets of whole numbers or truth values
            alone; or "".
    """

    net: Net
    nets: Mapping[str, Net]
    task: Task
    outputs: int
    scaling: Scaling
    weights_sha256: str | None
    own_inputs: str = ""


def networks_of(spec: RunSpec, method: Method, dataset: Dataset) -> Networks:
    setting, device = spec.setting, spec.execution.device
    refuse_precision(setting, method, spec.plugins)
    task = TASKS[dataset.task].with_batch_size(setting.batch_size)
    task = task.with_measures(
        {
            measure.name: tried(measure)
            for measure in measures_of(setting, "client", spec.plugins)
            if measure.from_outputs
        }
    )
    if setting.loss:
        task = with_loss(task, setting.loss, _own_loss(setting.loss, spec.plugins), device)
    outputs = dataset.outputs if method.outputs is None else method.outputs
    weights = weights_sha256 = None
    if spec.weights:
        name, entry = spec.weights
        content, weights_sha256 = read_weights(name, entry)
        weights = models.LearnedWeights(entry.name, content)
    scaling = Scaling.of(dataset, device, setting.scaling)

    def build() -> nn.Module:
        model = models.build(setting.model, dataset.shapes, outputs, weights, spec.plugins)
        return laid_out(model.to(device), setting.model, spec.plugins, setting.precision)

    def some(x: NDArray[Any], rows: list[int]) -> torch.Tensor:
        return scaling(torch.from_numpy(np.array(x[rows])).to(device))

    targets = dataset.train.y[:2].shape if task.alike else None
    own_inputs = ""
    if models.find(setting.model, spec.plugins).own:
        own_inputs = _own_inputs(dataset)
        net = own_net(
            setting.model,
            build,
            stream(spec.seed, "init"),
            some(dataset.train.x, differing(dataset.train.x)[: max(2, setting.batch_size)]),
            outputs if method.classifies else None,
            task.name,
            bool(setting.loss),
            setting.optimizer.weight_decay > 0,
            setting.precision,
            targets,
            dataset.packing,
        )
        if net.own and net.own.normalised:
            task = task.of_probabilities()
    elif targets and len(targets) > 2:
        wanted = f"one of your own, as targets are {[*targets[1:]]}, and its outputs [{outputs}]"
        raise bad_value(f"setting {setting.name}", "model", setting.model, wanted)
    else:
        net = Net(build(), setting.precision)
    if method.classifies:
        for split in filter(None, (dataset.train, dataset.test)):
            scored = split is (dataset.test or dataset.train)
            rows = _telling(split.x, dataset.packing, many=scored and bool(net.own))
            refuse_unaccepted(setting.model, net.module, some(split.x, rows), dataset.packing)
    modules = method.nets(dataset.input_shape, outputs)
    nets = {name: Net(module.to(device)) for name, module in modules.items()}
    return Networks(net, nets, task, outputs, scaling, weights_sha256, own_inputs)


def _own_inputs(dataset: Dataset) -> str:
    """The type of whole numbers or truth values alone, for a model of the user's own; or ""."""
    parts = dataset.packing.parts if dataset.packing else ()
    if dataset.train.x.dtype == np.int64:
        return "int64"
    alone = len(parts) == 1 and parts[0].name == ALONE and parts[0].kind == "bool"
    return "bool" if alone else ""


def differing(x: NDArray[Any]) -> list[int]:
    """Rows of the first samples, as many as are scored at a time, if they are not too large.

    The first two differ, if some do: equal ones hide much.
    """
    at_once = max(2, min(BATCH, MOST // max(1, x[0].size)))
    other = next((at for at in range(1, min(len(x), FIRST)) if not np.array_equal(x[at], x[0])), 1)
    rows = range(min(len(x), at_once))
    return [0, other, *(row for row in rows if row not in (0, other))] if len(x) > 1 else [0]


def _telling(x: NDArray[Any], packing: Packing | None, many: bool) -> list[int]:
    """Rows that tell whether a model accepts all: of whole numbers, those of the extreme ones.

    An id may be beyond the model's vocabulary.

    Args:
        many: whether they are as many as are scored at a time, or two.
    """
    rows = {*(differing(x) if many else range(min(2, len(x))))}
    if packing or x.dtype in WHOLE:
        flat = x.reshape(len(x), -1)
        ends = packing.ends if packing else [flat.shape[1]]
        for part in np.split(flat, ends[:-1], axis=1):
            rows |= {int(place(part)) // part.shape[1] for place in (np.argmin, np.argmax)}
    return sorted(rows)


def class_weights_of(
    setting: Setting, dataset: Dataset, split: Split, partition: Partition, device: str
) -> torch.Tensor:
    """The weight of each class in the training loss, or of each label.

    Args:
        split: the training samples with the labels that clients train on.

    Raises:
        UserError: for samples without classes or labels, and for another number of weights.
    """
    given, where = setting.class_weights, f"setting {setting.name}"
    labels = dataset.task == "multi_label"
    if not labels and dataset.task not in ("classification", "binary"):
        wanted = f"none for {dataset.name}, whose samples have no class (task {dataset.task})"
        raise bad_value(where, "class_weights", given, wanted)
    if isinstance(given, list) and len(given) != dataset.classes:
        wanted = f"{dataset.classes} weights, as {'labels' if labels else 'classes'}"
        raise bad_value(where, "class_weights", given, wanted)
    if not isinstance(given, list) and labels:
        y = split.y[np.concatenate(partition.train)]
        given = (np.maximum((y == 0).sum(0), 1) / np.maximum(y.sum(0), 1)).tolist()
    elif not isinstance(given, list):
        # Of all clients, but for the last classes without any.
        counts = np.bincount(split.y[np.concatenate(partition.train)])
        given = (counts.sum() / (dataset.classes * np.maximum(counts, 1))).tolist()
        given += [1.0] * (dataset.classes - len(given))
    kind = torch.get_default_dtype()
    return torch.tensor(given, dtype=kind, device=device)


def _own_loss(name: str, folders: Folders) -> Loss:
    """The function of a loss plug-in, which has its file's name.

    Raises:
        UserError: if its file has none.
    """
    if given := folders.given("losses", name):
        return cast(Loss, given)
    file = folders.files("losses")[name]
    function = getattr(plugins.import_file("losses", file), name, None)
    if not callable(function):
        raise refusal(file, f"expected a function {name}(outputs, targets)", name, code="missing")
    return cast(Loss, function)


def with_fitting_numbers(dataset: Dataset, model: str, folders: Folders) -> Dataset:
    """The data set with whole numbers of 64 bits or as fractions, if the model takes no others.

    Words' ids have to stay whole; counts and categories are features.
    """
    entry = models.find(model, folders)
    if dataset.packing and dataset.packing.is_of_one and not entry.own:
        dataset = _unpacked(dataset)
    x, packing = dataset.train.x, dataset.packing
    whole = x.dtype in WHOLE or (packing and x.dtype != np.uint8)
    if not whole or entry.weights or entry.family in OF_IDS:
        return dataset
    kinds: list[tuple[Any, Packing | None]] = [
        *([] if entry.own else [(x.dtype, None)]),  # fedrepro's own take words of 32 bits
        (np.int64, None),
        (np.float32, None),
    ]
    if packing:
        kinds = [(x.dtype, packing), (np.float32, packing.of_fractions())]
    with torch.random.fork_rng([]), torch.no_grad():
        module = models.build(model, dataset.shapes, dataset.outputs, folders=folders)
        module.eval()
        for kind, packing in kinds:
            arguments = packing.arguments_for(module.forward) if packing else one_input
            inputs, named = arguments(torch.from_numpy(x[:2].astype(kind)))
            try:
                module(*inputs, **named)
            except Exception:  # of any layer; `own_net` says so
                continue
            first = (kind, packing) == (x.dtype, dataset.packing)
            return dataset if first else _stored_as(dataset, kind, packing)
    return dataset


def _unpacked(dataset: Dataset) -> Dataset:
    """The data set with truth values as whole numbers 0 and 1."""
    assert dataset.packing is not None
    shape = dataset.packing.parts[0].shape

    def shaped(split: Split) -> Split:
        return replace(split, x=split.x.reshape(len(split.x), *shape))

    test = dataset.test and shaped(dataset.test)
    return replace(dataset, train=shaped(dataset.train), test=test, input_shape=shape, packing=None)


def _stored_as(dataset: Dataset, kind: Any, packing: Packing | None) -> Dataset:
    """The data set with inputs of another type."""

    def stored(split: Split) -> Split:
        return replace(split, x=as_type(dataset.name, "x", split.x, kind))

    test = dataset.test and stored(dataset.test)
    return replace(dataset, train=stored(dataset.train), test=test, packing=packing)


def measures_of(setting: Setting, per: Per, folders: Folders) -> list[Measure]:
    """The measures that the setting asks for of clients or of evaluated rounds."""
    names = setting.evaluate.measures
    known = (measures.find(name, per, folders=folders) for name in names)
    return [measure for measure in known if measure]


def tried(own: Measure) -> OfOutputs:
    """A user's measure, tried as :func:`fedrepro.check.own_functions.repeatable` does.

    A function of a program is given outputs in the shape of its targets, as a loss is: of two
    classes, [n, 1] beside [n] would be [n, n].
    """
    is_function = isinstance(inspect.getattr_static(type(own), "of_outputs"), staticmethod)
    measure = repeatable(own.name, own.checked)

    def aligned(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
        flat = is_function and outputs.ndim > targets.ndim and outputs.shape[-1] == 1
        return measure(outputs[..., 0] if flat else outputs, targets)

    return aligned


def laid_out(
    module: nn.Module, name: str, folders: Folders = NONE, precision: Precision = "float32"
) -> nn.Module:
    """The model called ``name``, in the memory format that trains fastest on its device."""
    entry = models.find(name, folders)
    if next(module.parameters()).device.type == "cpu":
        turned = entry.channels_last
    else:
        # A GPU's matrix units want it. Convolutions in float32 do without, and GroupNorm has no
        # kernel for it there. Plug-in models may `view` what has to be contiguous.
        normalised = any(isinstance(layer, nn.BatchNorm2d) for layer in module.modules())
        turned = precision != "float32" and normalised and not entry.own
    return module.to(memory_format=torch.channels_last) if turned else module


def refuse_precision(setting: Setting, method: Method, folders: Folders) -> None:
    """Raises UserError for a model or a method that is not tested in lower precision."""
    if setting.precision == "float32":
        return
    refused = ""
    if models.find(setting.model, folders).family != "convolutional":
        refused = f"model {setting.model}, which is not convolutional and gains nothing"
    elif not all(layer.classifies for layer in method.layers()):
        refused = "a method that trains no classifier: what it makes needs all bits"
    if refused:
        whose = f"setting {setting.name}"
        raise bad_value(whose, "precision", setting.precision, f"float32 for {refused}")


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
