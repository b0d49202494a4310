"""Models by name. Each has a ``body`` and a ``head``, and adapts to the shape of the data.

Those called ``wgan_gp`` are no classifiers: they have a ``generator`` and a ``critic`` instead.

Your own model is a file in a plug-in folder (:mod:`fedrepro.support.plugins`): ``my_mlp.py`` has
the function ``my_mlp``, and may define ``FAMILY = "mlp"``.

This module imports torch only when it builds a model.
"""

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedrepro.support import plugins
from fedrepro.support.errors import bad_value, load_valid, refusal

if TYPE_CHECKING:
    from torch import nn


class LearnedWeights(NamedTuple):
    """A file of pre-trained weights.

    Attributes:
        file: its name, whose suffix determines the format.
    """

    file: str
    content: bytes


# The shape of a sample, or of each of its inputs in a tuple or a dict.
Shapes = tuple[int, ...] | tuple[tuple[int, ...], ...] | dict[str, tuple[int, ...]]
# (shape of a sample, outputs) -> a model of the user's own
Make = Callable[[Any, int], "nn.Module"]


class ModelEntry(NamedTuple):
    """Where a model is defined.

    Attributes:
        module: file in this folder, or in a plug-in folder.
        family: "linear", "mlp", "convolutional", "recurrent" or "transformer": selects how clients
            are executed.
        source: paper or code that defines the architecture.
        weights: the entry under `weights` in config/datasets.yaml that it starts from, if any.
        channels_last: whether that memory format makes a training step on a CPU at least 5 %
            faster, at the usual shapes. `make bench` measures two of them.
        function: its name in the file, by default the model's; (input shape, outputs) -> module.
            For models with `weights` it also takes LearnedWeights or None.
        file: of a plug-in model.
        make: builds a model that has no file (:func:`given`).
    """

    module: str
    family: str
    source: str
    weights: str | None = None
    channels_last: bool = False
    function: str = ""
    file: Path | None = None
    make: "Make | None" = None

    @property
    def own(self) -> bool:
        """True if the user has written it."""
        return bool(self.file or self.make)


# Of models/pretrained.py, under `weights` in config/datasets.yaml: no model that a run can train.
INCEPTION = "inception_v3"

# Families and sources that several models share.
CNN = "convolutional"
IMA = "IMA Table IV, B10"
SUPERFED = "SuPerFed's released code"
EARLIER = "SuPerFed's released code, an earlier state: item 58"
DEMONSTRATIONS = "demonstrations"
REDRAWN = "AAggFF's released code, item 14"
FEDEVG = "FedEvg's released code"

_TABLE = {
    "logistic": ModelEntry("mlp", "linear", "AAggFF (ICML 2024), Heart and Berka"),
    "twonn": ModelEntry("mlp", "mlp", "McMahan et al., AISTATS 2017: 784-200-200-10"),
    "mcmahan_cnn": ModelEntry("cnn", CNN, "McMahan et al., AISTATS 2017", channels_last=True),
    "ima_fmnist_cnn": ModelEntry("cnn", CNN, IMA, channels_last=True),
    "ima_cifar_cnn": ModelEntry("cnn", CNN, IMA, channels_last=True),
    "ima_digits_cnn": ModelEntry("cnn", CNN, IMA, channels_last=True),
    "ima_vgg11": ModelEntry("cnn", CNN, IMA),
    "ima_alexnet": ModelEntry("cnn", CNN, IMA),
    "ima_resnet18": ModelEntry("cnn", CNN, IMA, channels_last=True),
    "celeba_cnn": ModelEntry("cnn", CNN, "AAggFF (ICML 2024), C.2; LEAF", channels_last=True),
    "m5": ModelEntry("sequences", CNN, "Dai et al., ICASSP 2017"),
    "stacked_lstm": ModelEntry("sequences", "recurrent", "LEAF (Caldas et al., 2018)"),
    "superfed_twonn": ModelEntry("superfed", "mlp", SUPERFED, function="twonn"),
    "superfed_twonn_earlier": ModelEntry("superfed", "mlp", EARLIER, function="twonn_earlier"),
    "superfed_twocnn": ModelEntry("superfed", CNN, SUPERFED, channels_last=True, function="twocnn"),
    "superfed_twocnn_earlier": ModelEntry(
        "superfed", CNN, EARLIER, channels_last=True, function="twocnn_earlier"
    ),
    "superfed_resnet9": ModelEntry("superfed", CNN, SUPERFED, function="resnet9"),
    "superfed_mobilenet": ModelEntry("superfed", CNN, SUPERFED, function="mobilenet"),
    "superfed_vgg9": ModelEntry("superfed", CNN, SUPERFED, function="vgg9"),
    "next_char_lstm": ModelEntry("sequences", "recurrent", "SuPerFed's released code; LEAF"),
    "resnet18": ModelEntry("batchnorm", CNN, "FedGO; kuangliu's code"),
    "resnet50": ModelEntry("batchnorm", CNN, "FedGO; kuangliu's code"),
    "vgg11": ModelEntry("batchnorm", CNN, "FedGO; chengyangfu's code"),
    "small_bn_cnn": ModelEntry("batchnorm", CNN, DEMONSTRATIONS, channels_last=True),
    "strided_bn_cnn": ModelEntry("batchnorm", CNN, DEMONSTRATIONS),
    "discriminator_cnn": ModelEntry("adversaries", CNN, "FedGO, Table 14; A5", channels_last=True),
    "discriminator_cnn_mlp": ModelEntry("adversaries", CNN, "FedGO, Table 14"),
    "discriminator_resnet8": ModelEntry("adversaries", CNN, "FedGO, Table 14"),
    "discriminator_small": ModelEntry("adversaries", CNN, DEMONSTRATIONS),
    "wgan_gp_resnet": ModelEntry("adversaries", CNN, "Gulrajani et al., NeurIPS 2017; their code"),
    "wgan_gp_small": ModelEntry("adversaries", CNN, DEMONSTRATIONS),
    "fedevg_resnet10": ModelEntry("energy", CNN, "FedEvg (thesis IV); its released code"),
    "fedevg_resnet10_power": ModelEntry("energy", CNN, FEDEVG),
    "fedevg_resnet10_judge": ModelEntry("energy", CNN, FEDEVG),
    "fedevg_small": ModelEntry("energy", CNN, DEMONSTRATIONS),
    "fedevg_small_judge": ModelEntry("energy", CNN, DEMONSTRATIONS),
    "fedcgan": ModelEntry("conditional", CNN, FEDEVG),
    "fedcgan_small": ModelEntry("conditional", CNN, DEMONSTRATIONS),
    "fedcvae": ModelEntry("conditional", CNN, FEDEVG),
    "fedcvae_small": ModelEntry("conditional", CNN, DEMONSTRATIONS),
    "distilbert": ModelEntry("pretrained", "transformer", "Sanh et al., 2019", "distilbert"),
    "distilbert_redrawn": ModelEntry("pretrained", "transformer", REDRAWN, "distilbert"),
    "efficientnet_b0": ModelEntry("pretrained", CNN, "Tan and Le, ICML 2019", "efficientnet_b0"),
    "efficientnet_b0_redrawn": ModelEntry("pretrained", CNN, REDRAWN, "efficientnet_b0"),
    "mobilevit": ModelEntry(
        "pretrained", "transformer", "Mehta and Rastegari, ICLR 2022; from timm"
    ),
}
MODELS = {name: row._replace(function=row.function or name) for name, row in _TABLE.items()}


_given: dict[str, ModelEntry] = {}


@contextmanager
def given(name: str, make: "Make | None") -> Iterator[None]:
    """While this lasts, ``name`` is the model that ``make`` builds; with None, what it was."""
    if make is None:
        yield
        return
    before = dict(_given)
    _given[name] = ModelEntry(name, CNN, "given as an object", make=make, function=name)
    try:
        yield
    finally:
        _given.clear()
        _given.update(before)


FAMILIES = ("linear", "mlp", "convolutional", "recurrent", "transformer")


def known(folders: plugins.Folders = plugins.NONE) -> dict[str, ModelEntry]:
    """All models by name, plug-ins last.

    Broken plug-ins are left out, with a line on stderr for each.
    """
    return {**MODELS, **load_valid(_own, folders.files("models", MODELS)), **_given}


def names(folders: plugins.Folders = plugins.NONE) -> list[str]:
    """The names of all models. Plug-ins are read here but not parsed: later edits are noticed."""
    for file in folders.files("models", MODELS).values():
        plugins.content_of(file)
    return [*dict.fromkeys((*MODELS, *folders.files("models"), *_given))]


@lru_cache
def _own(file: Path) -> ModelEntry:
    """A plug-in model, read from its file's syntax tree.

    Raises:
        UserError: for a syntax error, for a file without a function of its name, or with an unknown
            family.
    """
    nodes = plugins.parse(file).body
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    if file.stem not in functions:
        why = f"expected a function {file.stem}(input_shape, outputs)"
        raise refusal(file, why, file.stem, code="missing")
    # Of unknown cost: never run its clients side by side, and distribute them over processes early.
    family = "convolutional"
    for node in nodes:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FAMILY":
            family = ast.unparse(node.value).strip("'\"")
    if family not in FAMILIES:
        raise bad_value(file, "FAMILY", family, f"one of {', '.join(FAMILIES)}", FAMILIES)
    return ModelEntry(file.stem, family, file.name, file=file, function=file.stem)


def find(name: str, folders: plugins.Folders = plugins.NONE) -> ModelEntry:
    """The model called ``name``.

    Raises:
        UserError: if there is no such model, or its file is broken.
    """
    files = {} if name in _given else folders.files("models", MODELS)
    if name in files:
        return _own(files[name])
    models = {**MODELS, **_given}
    if name not in models:
        raise bad_value(
            "model", "name", name, f"one of {', '.join(names(folders))}", names(folders)
        )
    return models[name]


def module_file(name: str, folders: plugins.Folders = plugins.NONE) -> Path:
    """The source file that defines the model called ``name``."""
    model = find(name, folders)
    return model.file or Path(__file__).parent / f"{model.module}.py"


def build(
    name: str,
    input_shape: Shapes,
    outputs: int,
    weights: LearnedWeights | None = None,
    folders: plugins.Folders = plugins.NONE,
) -> "nn.Module":
    """Build the model called ``name``; its weights are not drawn yet, pre-trained ones are loaded.

    One of the user's own draws its weights here, from the global generators.

    Args:
        input_shape: of one sample: (channels, height, width), (features,), (channels, samples)
            of sound, (length,) of words or (2, length) of tokens and their mask. For a model of the
            user's own also a tuple or a dict of them, one for each input.
        outputs: classes or words, or 1 for a binary task.
        weights: the file that its entry names, for a model with pre-trained weights.
        folders: plug-in folders, which are searched too.

    Raises:
        UserError: if there is no such model, it does not accept that input, or its weights are
            missing or do not fit.

    Examples:
        >>> import torch
        >>> from fedrepro.models.registry import build
        >>> build("twonn", (1, 28, 28), 10)(torch.zeros(5, 1, 28, 28)).shape
        torch.Size([5, 10])
    """
    model = find(name, folders)
    if model.make:
        return made(name, model.make, input_shape, outputs)
    if model.file:
        function = getattr(plugins.import_file("models", model.file), model.function)
        return made(name, function, input_shape, outputs)
    if not all(isinstance(length, int) for length in input_shape):
        wanted = "a module or a function of your own that builds one"
        raise bad_value("samples of several inputs", "model", name, wanted)
    given = (weights,) if model.weights else ()
    build = getattr(import_module(f"fedrepro.models.{model.module}"), model.function)
    with import_module("torch").random.fork_rng([]):  # layers draw weights, which are drawn again
        return build(input_shape, outputs, *given)  # type: ignore[no-any-return]


def outline(
    name: str, input_shape: Shapes, outputs: int, folders: plugins.Folders = plugins.NONE
) -> "nn.Module":
    """The model called ``name``, for its names and shapes: without numbers if it is ours.

    One of the user's own may ask its tensors for numbers while it is built.
    """
    rng, torch = map(import_module, ("fedrepro.support.rng", "torch"))
    with rng.seeded(0) if find(name, folders).own else torch.device("meta"):
        return build(name, input_shape, outputs, folders=folders)


def made(name: str, function: Make, input_shape: Shapes, outputs: int) -> "nn.Module":
    """A copy of what a function of the user's own returns, which may be the same module each time.

    Raises:
        UserError: if it is not a module or has no parameters, or if it can't be copied and is the
            same each time: training would change the user's.
    """
    torch_nn = import_module("torch.nn")
    copied: Callable[[nn.Module], nn.Module] = import_module("fedrepro.support.copies").copied
    module: nn.Module = function(input_shape, outputs)
    is_module = isinstance(module, torch_nn.Module)
    if not is_module:
        why = f"returned a {type(module).__name__}: expected a torch.nn.Module"
        raise refusal(f"model {name}", why)
    if next(module.parameters(), None) is None:
        raise refusal(f"model {name}", "has no parameters: expected some to train")
    for part, layer in module.named_modules():
        if getattr(layer, "sparse", False) is True:  # an embedding
            wanted = "false: optimizers take gradients of all its rows"
            raise bad_value(f"model {name}", f"{part}.sparse".lstrip("."), True, wanted)
    try:
        return copied(module)
    except (TypeError, RuntimeError) as error:  # a lock, a file or a generator in it
        with import_module("fedrepro.support.rng").seeded(0):
            again = function(input_shape, outputs)
        if {*map(id, again.state_dict(keep_vars=True).values())} & {
            *map(id, module.state_dict(keep_vars=True).values())
        }:
            why = f"can't be copied ({error}): expected a function that builds a new one each time"
            raise refusal(f"model {name}", why) from error
        return module
