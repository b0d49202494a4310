"""Train on arrays."""

import inspect
import os
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from fedrepro.api import given
from fedrepro.api.callbacks import Callback, Several
from fedrepro.api.model_identity import UnknownError, identity_of
from fedrepro.api.runs import Architecture, Run, place_of
from fedrepro.api.surroundings import (
    in_turn,
    remove_own,
    temporary_folder,
    threads_kept,
    torch_as_usual,
)
from fedrepro.check.hooks import float32_by_default
from fedrepro.config.run_spec import Execution, RunSpec
from fedrepro.config.settings import BETAS, Setting
from fedrepro.config.values import Device, ExecutorName
from fedrepro.data.arrays import NAME, dataset_of
from fedrepro.data.catalogue.entries import DataSize
from fedrepro.data.dataset import Dataset
from fedrepro.data.partition.partition import held_out, make_partition
from fedrepro.engine.initialise import initialise, is_fresh
from fedrepro.engine.losses import Loss
from fedrepro.engine.modules import refuse_unusable
from fedrepro.methods.facts import facts_of
from fedrepro.models import registry
from fedrepro.models.registry import made
from fedrepro.provenance import fingerprint, numerics
from fedrepro.provenance.identity import UNKNOWN
from fedrepro.run import runner
from fedrepro.run.runner import Report
from fedrepro.run.tracking import PROGRAMS
from fedrepro.support import rng
from fedrepro.support.copies import copied
from fedrepro.support.errors import Interrupted, bad_value, refusal
from fedrepro.support.old_names import with_new_keys
from fedrepro.support.plugins import Folders
from fedrepro.support.typed_yaml import Seed, Typed, validate

WHERE = "fedrepro.train"
Task = Literal["classification", "binary", "regression", "multi_label"]
Weights = Literal["keep", "draw"]


# Keys of a setting, too.
SAME = (
    "rounds", "participation", "epochs", "batch_size", "lr_decay", "attack", "availability",
    "noise",
)  # fmt: skip
OF_OPTIMIZER = ("lr", "momentum", "weight_decay", "betas")


class _Outside(Typed):
    """Arguments that are not keys of a setting."""

    seed: Seed
    device: Device
    executor: ExecutorName
    task: Task
    test_fraction: float | None
    validation: float
    weights: Weights | None
    overwrite: bool


def train(
    method: "str | type | ModuleType | Sequence[str | type | ModuleType]",
    model: "str | nn.Module | Architecture",
    clients: Sequence[Any],
    *,
    rounds: int,
    test: Any = None,
    test_fraction: float | None = None,
    validation: float = 0.0,
    task: Task = "classification",
    loss: "Loss | None" = None,
    class_weights: Literal["balanced"] | Sequence[float] | None = None,
    participation: float = 1.0,
    epochs: int = 1,
    batch_size: int = 32,
    lr: float = 0.1,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    optimizer: Literal["sgd", "adam"] = "sgd",
    betas: tuple[float, float] = BETAS,
    lr_decay: float | Mapping[str, Any] = 1.0,
    lr_schedule: "Literal['cosine'] | Sequence[float] | Callable[[int], float] | None" = None,
    attack: Mapping[str, Any] | None = None,
    availability: Mapping[str, Any] | None = None,
    noise: Mapping[str, Any] | None = None,
    evaluate_every: int = 1,
    measures: Any = (),
    stop: Mapping[str, Any] | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    initial: "Mapping[str, torch.Tensor] | nn.Module | str | Path | None" = None,
    seed: int = 1,
    device: "str | torch.device" = "cpu",
    executor: ExecutorName = "auto",
    weights: Literal["keep", "draw"] | None = None,
    folder: str | Path | None = None,
    overwrite: bool = False,
    **hyperparameters: Any,
) -> Run:
    """Train a method on your own data, in the same way as `fedrepro run`.

    Threads of one process take turns, so a callback must not wait for one that trains; processes
    train side by side.

    Args:
        method: a composition such as "fedprox" or "ima+scaffold" (:func:`methods` lists the parts);
            a class of yours that extends Method or Wrapper, or a module with one; or a list of
            these, such as ["ima", MyMethod, "fedadam"]. MyMethod is called my_method.
        model: a model's name (`fedrepro models` lists them), a module, or a function or a class
            that is called with a sample's shape and the number of outputs, or without arguments if
            it needs none and the first is not called a shape.
        clients: for each, (x [n, ...], y [n]) as arrays or tensors, or a data set of pairs or of
            dicts with a label, such as torch's and Hugging Face's. One that draws from the global
            generators (random transforms) is read anew in every epoch, by the run's seed. Classes
            are whole numbers from 0 without gaps. Inputs of bytes are divided by 255. Each x may be
            a tuple or a dict of several inputs [n, ...], which the model gets as ``model(user,
            item)`` or ``model(user=..., item=...)`` if it takes as many, else as one tuple or dict.
        test: test samples in the same form, which belong to no client.
        test_fraction: the share of its samples that each client holds out for testing. Default: 0
            with ``test``, else 0.2.
        validation: the share of the remaining samples that each client keeps for validation, by
            which ``stop`` then ends the run; ``run.rounds`` has validation_accuracy.
        task: "classification"; "binary", of two classes with one output, which is the logit of
            class 1; "regression", whose y are numbers [n] or [n, ...] and whose outputs have their
            shape (or [n, 1] for [n]), with the mean squared error as loss; or "multi_label", whose
            y [n, labels] are 0 and 1 and whose outputs are each label's logit.
        rounds: the number of rounds.
        participation: the share of the clients that take part in a round, at least one.
        epochs: of a client over its samples, in each round.
        batch_size: samples of a mini-batch; the last one of an epoch may have fewer.
        loss: (outputs, targets) -> losses of the samples, or their mean, in place of the task's:
            a function, or a module such as ``torch.nn.HuberLoss()``. It gets outputs before any
            softmax; with the tasks "regression", "multi_label" and "binary" in the shape of the
            targets, which are floats.
        class_weights: the weight of each class in the training loss, or "balanced". Test losses are
            not weighted.
        optimizer: of the clients, new in every round: "sgd" with ``momentum``, or "adam" with
            ``betas``.
        lr: its learning rate.
        weight_decay: the factor of the parameters that is added to the gradient.
        lr_decay: factor on the learning rate after each round, or {"factor": .5, "every": 10}.
        lr_schedule: factors on the learning rate: of each round (the last for all further ones), a
            function of the round, counted from 0, or "cosine".
        attack, availability, noise, stop: as the keys of an experiment file, such as
            {"kind": "sign_flip", "share": 0.2}, {"dropout": 0.1}, {"kind": "pair", "rate": 0.2},
            {"measure": "accuracy", "at": 90}.
        measures: one or several functions (outputs, targets) -> number, or classes that extend
            :class:`fedrepro.measures.base.Measure`, of each client on its test samples. More of a
            function's number is better. One whose first argument is called ``y_true`` or
            ``target``, as scikit-learn's are, is refused, and so is such a loss.
        callbacks: one or several objects with hooks of
            :class:`fedrepro.api.callbacks.Callback`, such as a
            :class:`fedrepro.api.callbacks.ProgressBar`: without one, nothing is printed.
        initial: the model's weights before the first round: a state dict, a module with one, or a
            file of safetensors.
        evaluate_every: number of rounds from one evaluation to the next; the last round is always
            evaluated.
        seed: from which partition, initial weights, cohorts and random numbers follow.
        device: "cpu", "cuda", or "cuda:1", or a torch.device of these. On a GPU, PyTorch computes
            without TF32 and in a fixed order from then on, in all of this process.
        executor: how a round's clients are computed: such as "vectorised", side by side
            (:mod:`fedrepro.engine.executor_facts`); "auto" chooses. All use one core here; several
            seeds train side by side in processes of your own.
        weights: of a model that is passed as an object. "keep": those of the module; "draw":
            ``seed`` draws them, by the layers' default rules. Default: "keep", but a module that
            nobody seems to have trained, loaded or changed since it was made is drawn, with a
            warning. A function runs with the global generators seeded by ``seed``, and what it
            returns is kept.
        folder: where to save the run. An interrupted run resumes there, and a finished one with
            the same arguments is reused. Another finished run there is refused, as is a folder
            with files of your own. Default: a temporary folder, which is deleted with the returned
            object; one that another process returns has its tables, but no model.
        overwrite: replace another finished run in ``folder``. Files of your own beside its files
            stay.
        hyperparameters: of the method's parts, such as ``mu=0.1``. Where two parts have one name,
            or this function has it too: with the part's name, as ``**{"fedadam.lr": 0.1}``.

    Raises:
        UserError: for invalid arguments.

    Examples:
        Three classes, and two clients that have two of them each:

        >>> import numpy as np
        >>> import fedrepro as fr
        >>> x, y = np.eye(3, dtype="float32"), np.arange(3)
        >>> clients = [(x[[0, 1] * 20], y[[0, 1] * 20]), (x[[1, 2] * 20], y[[1, 2] * 20])]
        >>> run = fr.train("fedprox", "logistic", clients, rounds=20, test=(x, y), mu=0.1)
        >>> print(run.rounds["test_accuracy"].iloc[-1])
        1.0
    """
    said = SimpleNamespace(**locals())
    try:
        with in_turn(), torch_as_usual():
            return _trained(said)
    except Interrupted as stopped:
        if folder is None:  # the temporary one is gone with its run
            why = f"{str(stopped).partition(',')[0]}: a run in a `folder` can be resumed"
            raise Interrupted(why, stopped.status - 128) from None
        raise


def _trained(said: SimpleNamespace) -> Run:
    """The run that :func:`train`'s arguments ask for."""
    said.callbacks, said.measures = given.several(said.callbacks), given.several(said.measures)
    said.clients = given.clients_of(said.clients)
    callbacks = Several(said.callbacks)
    method, classes = given.composition_of(said.method)
    _refuse_requirements(method, Folders(objects=classes))
    outside = validate(_Outside, given.as_in_files(_only(_Outside.model_fields, said)), WHERE)
    vars(said).update(dict(outside))  # as files would have them
    dataset = dataset_of(said.clients, said.test, said.task)
    share, validation = said.test_fraction or 0.0, said.validation
    share = 0.2 if said.test_fraction is None and said.test is None else share
    architecture = _architecture_of(said)
    objects = given.objects_of(said.loss, said.measures)
    given.refuse_unscored(objects, share)
    content = {
        **_only(SAME, said),
        "dataset": NAME,
        "partition": {"scheme": "natural", "test_fraction": share, "validation": validation},
        "model": _called(said.model, said.initial is not None),
        "optimizer": {"name": said.optimizer, **_only(OF_OPTIMIZER, said)},
        "evaluate": {
            "clients": share > 0,
            "every": said.evaluate_every,
            "measures": given.names(objects, "measures"),
        },
        "loss": next(iter(given.names(objects, "losses")), None),
        "class_weights": given.listed(said.class_weights),
        "lr_schedule": given.factors_of(said.lr_schedule, said.rounds),
        "stop": given.stop_of(said.stop, said.callbacks),
    }
    plugins = Folders(objects=(*objects, *classes))
    spec = _spec_of(said, method, content, dataset, plugins)
    _refuse_single(dataset, share, validation)
    if not share and (line := given.unscored(spec)):
        _warn(line)
    if share and dataset.test and (line := given.stopped_by_shared(spec)):
        _warn(line)
    if dataset.redraw and (share or validation):
        _warn(
            "clients: the samples that they hold out are drawn, too, once and by the same "
            "transform, and scored so: give `test` samples without it"
        )
    if dataset.test and dataset.test.drawn:
        _warn("test: its samples are drawn, as by a random transform, once, and scored so")
    run = _run_in(said.folder, architecture, plugins)
    with callbacks.watching(spec):
        made = _carry_out(said, spec, dataset, run, callbacks.on_round)
        run.manifest.update(made)
        callbacks.on_end(run)
    return run


def _architecture_of(said: SimpleNamespace) -> "Architecture | None":
    """Returns what builds the model; None for a name without other initial weights."""
    model, named, replaced = said.model, isinstance(said.model, str), said.initial is not None
    if named and said.weights == "keep":
        wanted = "none beside a model's name, whose weights `seed` draws: see `initial`"
        raise bad_value(WHERE, "weights", said.weights, wanted)
    if replaced and said.weights == "draw":
        raise bad_value(WHERE, "weights", said.weights, "none, with `initial`")
    build = None if named else _architecture(model, said.weights, replaced)
    return given.starting_from(model, build, said.initial, said.seed) if replaced else build


def _is_of_torch(layer: nn.Module) -> bool:
    """Return True for a layer whose text has no address of an object in it."""
    return type(layer).__module__.partition(".")[0] == "torch"


def _only(names: Iterable[str], said: SimpleNamespace) -> dict[str, Any]:
    return {name: getattr(said, name) for name in names}


def _called(model: Any, changed: bool) -> str:
    """The name of a model: one of ours with other initial weights has another."""
    if isinstance(model, str):
        return f"{model}_initial" if changed else model
    name = given.name_of(model, "model")
    return f"own_{name}" if name in registry.names() else name


def _spec_of(
    said: SimpleNamespace, method: str, content: dict[str, Any], dataset: Dataset, plugins: Folders
) -> RunSpec:
    if dataset.task == "regression" and isinstance(content["stop"], Mapping) and content["stop"]:
        content = {**content, "stop": {"measure": "loss", **content["stop"]}}
    written = with_new_keys("experiment", {"settings": {"": given.as_in_files(content)}}, WHERE)
    setting = validate(Setting, written["settings"][""], WHERE, plugins)
    setting._name = PROGRAMS
    taken = [*inspect.signature(train).parameters][:-1]  # the last takes all others
    parts = given.by_part(method, given.as_in_files(said.hyperparameters), plugins, taken)
    size = DataSize(
        train=len(dataset.train),
        shape=tuple(dataset.input_shape),
        classes=dataset.classes,
        clients=len(said.clients),
    )
    execution = Execution(said.executor, said.device)
    seed = said.seed
    return RunSpec(setting, method, method, parts, seed, execution, plugins=plugins, data_size=size)


def _run_in(
    folder: str | Path | None, architecture: "Architecture | None", plugins: Folders
) -> Run:
    """A run in ``folder``, or in a temporary one that is deleted with the object."""
    if folder is not None:
        return Run(place_of(folder), {}, architecture, plugins)
    temporary = temporary_folder(WHERE)
    run = Run(Path(temporary, "run"), {}, architecture, plugins)
    weakref.finalize(run, remove_own, temporary, os.getpid())
    return run


def _carry_out(
    said: SimpleNamespace, spec: RunSpec, dataset: Dataset, run: Run, report: Report
) -> dict[str, Any]:
    """The manifest of the run, made in its folder or there already.

    Args:
        report: called after every round.
    """
    warns = said.folder is not None  # that a model cannot be compared with that of a saved run
    samples, name, architecture = dataset.train, spec.setting.model, run.architecture
    partition = make_partition(samples.y, samples.group, spec.setting.partition, spec.seed)
    if line := partition.warning():
        _warn(line.removeprefix("warning: "))
    with threads_kept(), float32_by_default(), registry.given(name, architecture):
        if architecture:
            with rng.seeded(spec.seed):
                module = registry.made(name, architecture, dataset.shapes, dataset.outputs)
            source = _identity_of(f"model {type(module).__name__}", module, warns)
            code = fingerprint.of_text(f"{_code_around(spec.method)} {source}")
            # Beside the model with its weights, what all seeds share of it.
            shared = [
                (path, type(layer), layer.extra_repr() if _is_of_torch(layer) else "")
                for path, layer in module.named_modules()
            ]
            layers = _identity_of("", shared, warns=False)
            ids = numerics.of_composition(spec.method)
            ids |= {f"model {name}": source, f"{numerics.LAYERS}{name}": layers}
        else:
            code, ids = fingerprint.of_code(spec), numerics.of_run(spec)
        for kind, name, each in spec.plugins.objects:
            part = f"{given.PART[kind]} {name}"
            source = _identity_of(part, each, warns)
            code, ids = fingerprint.of_text(f"{code} {source}"), ids | {part: source}
        if dataset.redraw:
            source = _identity_of("data that draw", dataset.redraw.drawing, warns)
            code, ids = fingerprint.of_text(f"{code} {source}"), ids | {"transform": source}
        return runner.run(
            spec,
            dataset,
            partition,
            run.folder,
            code,
            report,
            numerics=ids,
            replaces="others" if said.overwrite else "none",
            note=_warn,
        )


def _refuse_requirements(method: str, plugins: Folders) -> None:
    """Refuse a method that needs another run's artifact."""
    if needs := facts_of(method, plugins).requires:
        wanted = f"one that does not require {', '.join(needs)}: use an experiment file for it"
        raise bad_value(WHERE, "method", method, wanted)


def _warn(line: str) -> None:
    """Warn at the line that called :func:`train`, however deep in it this is called."""
    frame, level = inspect.currentframe(), 1
    while frame and frame.f_code is not train.__code__:
        frame, level = frame.f_back, level + 1
    warnings.warn(line, stacklevel=level + 1)


def _refuse_single(dataset: "Dataset", share: float, validation: float) -> None:
    """Refuse a client of fewer samples than each holds out, and one to train on."""
    sizes = np.bincount(np.asarray(dataset.train.group))
    held = {"test_fraction": share, "validation": validation}
    asked = {key: part for key, part in held.items() if part}
    left = sizes.min()
    for part in asked.values():
        left = left - held_out(left, part) if left > 1 else 0
    if left < 1:
        key, unset = f"clients.{sizes.argmin()}", "` or `".join(f"{name}=0" for name in asked)
        shares = " and ".join(f"{name}={part:g}" for name, part in asked.items())
        why = (
            f"{key}: samples: {sizes.min()}: expected enough to hold out some by {shares} and keep "
            f"one: leave the client out, or set `{unset}`"
        )
        raise refusal(WHERE, why, key)


def _architecture(model: Any, weights: Weights | None, replaced: bool = False) -> "Architecture":
    """A function that returns the module, or the function itself; ``weights`` as in :func:`train`.

    While it runs, the global generators are seeded by the run.
    """
    if not isinstance(model, nn.Module):
        if not callable(model):
            wanted = "a name, a module, or a function that builds one"
            raise bad_value(WHERE, "model", model, wanted)
        model = given.builder(model)
        return _drawn_anew(model) if weights == "draw" else model
    compiled = getattr(model, "_orig_mod", None)  # of torch.compile, whose code is no part of it
    model = model if compiled is None else compiled
    refuse_unusable(model)
    try:
        kept = copied(model)  # so that what becomes of it later is no other model
    except (TypeError, RuntimeError) as error:  # of a lock, a file, a generator in it
        why = f"cannot be copied: {error}: pass a function that builds it"
        raise refusal(WHERE, f"model {type(model).__name__}: {why}", "model") from error

    def build(shape: tuple[int, ...], outputs: int) -> "nn.Module":
        return kept

    if weights is None and is_fresh(model):
        if not replaced:
            _warn(
                f"model {type(model).__name__}: its weights seem to be as its layers drew them, so "
                "`seed` draws them anew: say weights='keep' if they are yours, else weights='draw'"
            )
        weights = "draw"
    return _drawn_anew(build) if weights == "draw" else build


def _drawn_anew(build: "Architecture") -> "Architecture":
    """``build`` with its weights replaced by draws from torch's global generator."""

    def drawn(shape: tuple[int, ...], outputs: int) -> "nn.Module":
        module = made("model", build, shape, outputs)
        with torch.no_grad():
            initialise(module, torch.default_generator)
        return module

    return drawn


def _code_around(composition: str) -> str:
    """The fingerprint of a run's code without its model."""
    around = fingerprint.code_around_model(composition)
    return fingerprint.of_closure(around, fingerprint.OUTSIDE_A_RUN)


def _identity_of(part: str, of: Any, warns: bool) -> str:
    """The hash of a model, with its weights before training, or of what else is an object.

    If it holds something that cannot be compared, the hash is random, so that no saved run is
    reused.

    Args:
        warns: whether to warn of a random hash.
    """
    try:
        return identity_of(of, weights=True)
    except UnknownError as error:
        if warns:
            _warn(f"{part}: no saved run is reused for it: it holds {error}")
        return f"{UNKNOWN}{uuid.uuid4().hex}"
