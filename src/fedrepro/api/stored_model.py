"""Build the model of a finished run from its file."""

from typing import TYPE_CHECKING

from torch import nn

from fedrepro.data.readers.packing import shapes_from
from fedrepro.engine.modules import fill
from fedrepro.models import registry
from fedrepro.models.weights import untrained
from fedrepro.run.results import MODEL as MODEL
from fedrepro.run.store import load_tree, refuse_other_constants
from fedrepro.support.errors import refusal
from fedrepro.support.rng import drawing_on, stream

if TYPE_CHECKING:
    from fedrepro.api.runs import Run


def read_model(run: "Run") -> nn.Module:
    """The trained shared model of a run, in evaluation mode.

    Raises:
        UserError: if it has none, or its name is unknown.
    """
    tensors, facts = load_tree(run.folder / MODEL)
    if facts.get("part") != "" or facts["clients"] is not None:
        raise refusal(run.folder, f"{run.method} has no shared model", code="missing")
    shape, outputs = shapes_from(facts["input_shape"]), int(facts["outputs"])
    with drawing_on(stream(run.seed, "init")), untrained():  # as in the run
        if run.architecture:
            module = registry.made("model", run.architecture, shape, outputs)
        else:
            module = registry.build(facts["model"], shape, outputs, folders=run.plugins)
    refuse_other_constants(module, tensors, facts, f"model {facts['model']}")
    fill(module, tensors)
    return module.eval()
