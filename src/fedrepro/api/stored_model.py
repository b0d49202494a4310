"""Build the model of a finished run from its file."""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from fedrepro.api.model_identity import UnknownError, identity_of
from fedrepro.data.readers.packing import Shapes, shapes_from
from fedrepro.engine.initialise import LOADED
from fedrepro.engine.modules import fill
from fedrepro.methods.registry import compose
from fedrepro.models import registry
from fedrepro.models.pretrained import untrained
from fedrepro.provenance import numerics
from fedrepro.provenance.identity import UNKNOWN
from fedrepro.run.results import MODEL as MODEL
from fedrepro.run.store import load_tree, refuse_other_constants
from fedrepro.run.tracking import PROGRAMS
from fedrepro.support import rng
from fedrepro.support.errors import UserError, refusal
from fedrepro.support.plugins import Folders
from fedrepro.support.rng import drawing_on, stream

if TYPE_CHECKING:
    from fedrepro.api.runs import Run


def read_model(run: "Run") -> nn.Module:
    """The trained shared model of a run, in evaluation mode.

    It warns of parts that each client keeps, which have their initial values.

    Raises:
        UserError: if it has none, or its name is unknown.
    """
    tensors, facts = load_tree(run.folder / MODEL)
    kept = run.kept_by_clients
    if facts.get("part") != "" or facts["clients"] is not None or kept == "all":
        raise refusal(run.folder, f"{run.method} has no shared model", code="missing")
    shape, outputs = shapes_from(facts["input_shape"]), int(facts["outputs"])
    name, recorded = facts["model"], numerics.recorded(run.manifest.get("numerics", {}))
    known = recorded.get(f"model {name}", UNKNOWN)
    if not run.architecture and name not in registry.names(run.plugins):
        why = f"its model {name} was built by the program that made it: {MODEL} has its weights"
        if run.setting != PROGRAMS:
            why = f"its model {name} is a file of its workbench: load it by setting and method"
        raise refusal(run.folder, why, "model", name, code="missing")
    with drawing_on(stream(run.seed, "init")), untrained():  # as in the run
        if run.architecture:
            module = registry.made("model", run.architecture, shape, outputs)
        else:
            module = registry.build(name, shape, outputs, folders=run.plugins)
    refuse_other_constants(module, tensors, facts, f"model {facts['model']}")
    if run.architecture and not known.startswith(UNKNOWN):
        _refuse_another(run, run.architecture, shape, outputs, known)
    fill(module, tensors)
    trained = (layer for layer in module.modules() if next(layer.parameters(), None) is not None)
    LOADED.update((id(layer), layer) for layer in trained)
    if kept:
        line = f"model: with {run.method} each client keeps a part of it: that is as initially here"
        warnings.warn(line, stacklevel=4)
    module.eval()
    return module


def kept_by_clients(manifest: Mapping[str, Any], plugins: Folders) -> Literal["all", "part", ""]:
    """How much of a run's model each client keeps; the run's file has that as it was initially."""
    made = manifest["run"]
    with suppress(UserError):  # of a method that only the program that made the run knows
        method, _ = compose(made["composition"], made["hyperparameters"], plugins)
        if method.own_classifier:
            return "all"
    return "part" if manifest.get("shares_part_of_model") else ""


def _refuse_another(run: "Run", build: Any, shape: Shapes, outputs: int, recorded: str) -> None:
    """Raises UserError if what builds the model does not build that of the run any more.

    A function may depend on variables that have changed since, and a module's attributes, too.
    """
    with rng.seeded(run.seed):
        module = registry.made("model", build, shape, outputs)
    try:
        same = identity_of(module, weights=True) == recorded
    except UnknownError:
        return
    if not same:
        why = "its model is built in another way than in the run: what builds it has changed since"
        raise refusal(run.folder, why, "model")
