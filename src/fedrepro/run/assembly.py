"""Assemble a run from its configuration, data and partition."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrepro.check.own_functions import refuse_unfit
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import OptimizerSpec, Setting
from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.partition.partition import Partition
from fedrepro.data.tensors.noise import with_noise, with_reversed_labels
from fedrepro.data.tensors.samples import ClientData, ClientSamples, Scaling, TensorSamples
from fedrepro.data.tensors.standardise import standardised
from fedrepro.engine.attacks import Attack, attackers
from fedrepro.engine.availability import Availability
from fedrepro.engine.context import Context, Inputs
from fedrepro.engine.executor_facts import FACTS, STACKED, first_with
from fedrepro.engine.executors import EXECUTORS, choose
from fedrepro.engine.graphs import record_on
from fedrepro.engine.losses import with_own_mean
from fedrepro.engine.method import Method
from fedrepro.engine.optim import Optimizer, adam, sgd
from fedrepro.engine.round import Federation
from fedrepro.engine.steps import steps_per_epoch
from fedrepro.engine.task import OfOutputs, Task
from fedrepro.engine.trials import mixes_when_testing, moved
from fedrepro.measures.base import Measure
from fedrepro.methods import registry
from fedrepro.methods.server.base import ServerOptimizer, built
from fedrepro.models import registry as models
from fedrepro.provenance import arithmetic
from fedrepro.run import devices
from fedrepro.run.networks import (
    Networks,
    StoredArtifact,
    class_weights_of,
    differing,
    given_to,
    measures_of,
    networks_of,
    tried,
    with_fitting_numbers,
)
from fedrepro.run.schedules import schedule_of
from fedrepro.support import papers
from fedrepro.support.errors import UserError, bad_value, missing_value, nobody, refusal
from fedrepro.support.plugins import blamed
from fedrepro.support.rng import seeded

FEW = 8  # samples that are tried together and alone
MOST_TRIED = 4096  # samples of a mini-batch that a loss is tried on


@dataclass(frozen=True)
class Plan:
    """A run ready to start: what is trained, on which data, and what it is tested on.

    Attributes:
        networks: the model, the method's other networks, and how stored values become inputs.
        test: the data set's test samples, if it has any.
        group_tests: the test samples of each group, if groups are scored separately; else empty.
        client_tests: the samples that each client holds out, if clients are evaluated; else None.
        validation: training samples that clients hold out to choose hyperparameters, if they do.
        client_validations: the same for each client, if clients are evaluated; else None.
        client_sizes: training samples of each client, even if the method pools them.
        executor: the executor that defines the numbers: the first of those that give the same bits.
        threads: number of torch threads.
        workers: number of processes that clients are distributed over.
        together: whether clients that share a model are scored in common batches.
    """

    spec: RunSpec
    federation: Federation
    networks: Networks
    client_sizes: list[int]
    executor: str
    threads: int
    workers: int
    together: bool = False
    test: TensorSamples | None = None
    group_tests: list[TensorSamples] = field(default_factory=list)
    client_tests: ClientSamples | None = None
    validation: TensorSamples | None = None
    client_validations: ClientSamples | None = None

    @property
    def scores_clients(self) -> bool:
        """Whether each client's model is scored on the client's own samples."""
        return self.client_tests is not None

    @property
    def measures_of_round(self) -> list[Measure]:
        """The measures of evaluated rounds that the setting asks for."""
        return measures_of(self.spec.setting, "round", self.spec.plugins)

    @cached_property
    def test_columns(self) -> dict[str, OfOutputs]:
        """The measures of the test set besides loss and accuracy, by column of rounds.parquet."""
        task = self.federation.context.task
        names = task.measures if task.alike else task.on_test
        mine = (each for each in self.measures_of_round if each.from_outputs)
        return {
            **{f"test_{name}": task.measures[name] for name in task.measures if name in names},
            **{each.name: tried(each) for each in mine},
        }

    @property
    def reported_by_clients(self) -> list[str]:
        """Names of the measures of clients' updates that the setting asks for."""
        wanted = measures_of(self.spec.setting, "client", self.spec.plugins)
        return [measure.name for measure in wanted if not measure.from_outputs]

    @property
    def optimizer(self) -> ServerOptimizer | None:
        """The server optimizer that its composition names, if it names one."""
        _, optimizer = method_of(self.spec)
        return optimizer if type(optimizer) is not ServerOptimizer else None

    @property
    def distills(self) -> bool:
        """Whether a round's clients are scored together, as an ensemble."""
        layers = self.federation.method.layers()
        return self.test is not None and any(layer.distills for layer in layers)


def method_of(spec: RunSpec) -> tuple[Method, ServerOptimizer]:
    """The method and the server optimizer that ``spec`` names.

    Raises:
        UserError: for what :func:`fedrepro.methods.registry.compose` refuses, and for partial
            participation if the method needs all clients.
    """
    method, server_optimizer = registry.compose(
        spec.composition, spec.hyperparameters, spec.plugins
    )
    setting, where = spec.setting, f"method {spec.composition}"
    for why in (layer.why_all for layer in method.layers() if layer.full_participation):
        if setting.participation < 1:
            raise bad_value(where, "participation", setting.participation, f"1, as {why}")
        if setting.availability and setting.availability.loses:
            wanted = f"one that loses no client, as {why}"
            raise bad_value(
                where,
                "availability",
                setting.availability.model_dump(by_alias=False, exclude_defaults=True),
                wanted,
            )
    return method, server_optimizer


@blamed()
def make_plan(
    spec: RunSpec,
    dataset: Dataset,
    partition: Partition,
    given: Mapping[str, StoredArtifact] | None = None,
) -> Plan:
    """Everything that ``spec`` asks for.

    Args:
        given: the artifacts that its method requires (:func:`fedrepro.run.input_artifacts.load`).

    Raises:
        UserError: for problems that only show when data, model and method meet.
    """
    setting, execution, seed = spec.setting, spec.execution, spec.seed
    method, server_optimizer = method_of(spec)
    devices.prepare(execution.device)
    dataset = with_fitting_numbers(dataset, setting.model, spec.plugins)
    networks = networks_of(spec, method, dataset)
    _refuse_misfit(setting, seed, dataset, partition)
    dataset = standardised(dataset, partition)
    attack = None if method.centralized else _attack(setting, seed, len(partition.train))
    split = with_noise(dataset.train, partition, dataset.classes, setting.noise, seed)
    if attack and attack.kind == "label_flip":
        split = with_reversed_labels(split, partition, dataset.classes, attack.clients)
        attack = None  # of updates
    if setting.class_weights:  # of the labels that clients train on
        weights = class_weights_of(setting, dataset, split, partition, execution.device)
        networks = networks._replace(task=networks.task._replace(class_weights=weights))
    training = TensorSamples.of(split, networks.scaling, execution.device)
    training = replace(training, redraw=dataset.redraw)
    clients = ClientData(training, partition.train)
    clients = clients.pooled() if method.centralized else clients
    context = replace(
        _context(spec, networks, server_optimizer, len(clients.sizes)),
        artifacts=given_to(spec, given or {}, networks.scaling, len(clients.sizes)),
        inputs=_inputs(dataset, partition, networks.scaling),
    )
    record_on(execution.device, [networks.net, *networks.nets.values()])
    method.check(context)
    executor = _executor(spec, clients, context.cohort_size)
    about = FACTS[executor]
    federation = Federation(
        method=method,
        context=context,
        clients=clients,
        execute=EXECUTORS[executor](execution.threads, execution.device),
        redraw=training.redrawn if training.redraw else None,
        sample_cohort=_sampler(setting, context.clients, context.cohort_size),
        availability=None if method.centralized else _availability(setting, seed, clients),
        attack=attack,
    )
    if setting.loss and method.classifies:
        stacked, most = about.arithmetic == STACKED, max(map(len, partition.train))
        federation = _with_loss(setting.loss, federation, training, dataset.test, stacked, most)
    plan = Plan(
        spec,
        federation,
        networks,
        client_sizes=[len(rows) for rows in partition.train],
        executor=first_with(about.arithmetic) or executor,
        threads=arithmetic.threads_of(execution),
        workers=execution.threads if about.in_processes else 1,
    )
    return _with_test_samples(plan, dataset, partition, training)


def _with_loss(
    name: str,
    federation: Federation,
    training: TensorSamples,
    test: Split | None,
    stacked: bool,
    most: int,
) -> Federation:
    """The federation with what is known of a loss after a trial on outputs of the model.

    They are near those of the start, which themselves may all be the same.

    Args:
        most: the samples of the client that has most.

    Raises:
        UserError: if it does not fit some samples and these outputs.
    """
    ctx, params = federation.context, federation.context.net.bind(federation.initial)

    def outputs_of(samples: int) -> Tensor:
        rows = torch.linspace(0, len(training) - 1, samples, device=training.y.device).long()
        return ctx.net.predict(params, training.at(rows)[0])

    def refuse_of(task: Task, stacked: bool) -> None:
        for samples in sorted({few, max(few, min(ctx.batch_size, most, MOST_TRIED)), more}):
            rows = torch.arange(samples, device=training.y.device) % more
            tried, y = outputs[rows], training.y[:samples]
            if tried.shape[-1] == samples:  # [n] and [n, n] would fit each other by accident
                tried, y = tried[:-1], y[:-1]
            refuse_unfit(task, name, tried, y, stacked)

    few = min(3, len(training))
    with moved(ctx.net.module, lambda: outputs_of(few)):
        more = min(len(training), max(few, min(256, 10**6 // outputs_of(few)[0].numel())))
        outputs = outputs_of(more)
    with seeded(0, training.y.device):
        refuse_of(ctx.task, stacked=False)
        tests = [torch.tensor(test.y).to(training.y)] if test else []
        task = with_own_mean(ctx.task, outputs, training.y, *tests)
        refuse_of(task, stacked)
    return replace(federation, context=replace(ctx, task=task))


def _refuse_misfit(setting: Setting, seed: int, dataset: Dataset, partition: Partition) -> None:
    """Refuse a partition of other data, and to mirror what is no image."""
    if not partition.fits(dataset.train.y):
        why = f"made from another version of data set {dataset.name}"
        raise outdated(partition, why, setting.name, seed)
    images = dataset.train.x.dtype == np.uint8 and len(dataset.input_shape) == 3
    if setting.augment and not images:
        expectation = f"none for {dataset.name}: not images"
        raise bad_value(f"setting {setting.name}", "augment", setting.augment, expectation)


def outdated(partition: Partition, why: str, setting: str, seed: int) -> UserError:
    """The error for a partition that has to be made again, with the command that makes it."""
    again = f"make it again (fedrepro partition {setting} --seed {seed})"
    return refusal(f"partition {partition.name}", f"{why}: {again}", code="damaged")


def _attack(setting: Setting, seed: int, clients: int) -> Attack | None:
    """The setting's attack, on labels or updates, by the clients that the seed draws."""
    wanted = setting.attack
    if wanted is None:
        return None
    attacking = attackers(seed, clients, wanted.share)
    if wanted.share and not attacking:
        raise nobody(f"setting {setting.name}", "attack.share", wanted.share, clients)
    return Attack(wanted.kind, wanted.scale, attacking)


def _context(
    spec: RunSpec, networks: Networks, server_optimizer: ServerOptimizer, clients: int
) -> Context:
    setting = spec.setting
    return Context(
        net=networks.net,
        task=networks.task,
        clients=clients,
        rounds=setting.rounds,
        epochs=setting.epochs,
        batch_size=setting.batch_size,
        cohort_size=max(1, int(setting.participation * clients + 1e-9)),
        optimizer=_optimizer(setting.optimizer),
        server_optimizer=built(server_optimizer),
        schedule=schedule_of(setting),
        server_lr=server_optimizer.lr,
        nets=networks.nets,
        seed=spec.seed,
        flips=setting.augment == "flip",
    )


def _executor(spec: RunSpec, clients: ClientData, cohort: int) -> str:
    """The name of the executor that is asked for, or the fastest of those with its bits."""
    setting, execution = spec.setting, spec.execution
    mean_size = sum(clients.sizes) / len(clients.sizes)
    steps = steps_per_epoch(round(mean_size), setting.batch_size)
    return choose(
        execution.executor,
        arithmetic.pays(spec),
        models.find(setting.model, spec.plugins).family,
        execution.device.partition(":")[0],
        cohort * setting.rounds * setting.epochs * steps,
        setting.rounds,
        execution.threads,
    )


def _with_test_samples(
    plan: Plan, dataset: Dataset, partition: Partition, training: TensorSamples
) -> Plan:
    """The plan with the samples that it is tested on.

    Raises:
        UserError: if there are no test samples, or none of clients or of no client, which a measure
            needs.
    """
    spec, setting, method = plan.spec, plan.spec.setting, plan.federation.method
    personal = setting.evaluate.clients and (method.classifies or method.own_classifier)
    measured = measures_of(setting, "client", spec.plugins)
    asked = [measure.name for measure in measured if measure.from_outputs]
    if personal and asked and not partition.test:
        needed = f"a share, as {asked[0]!r} in evaluate.measures needs clients' test samples"
        raise missing_value(f"partition {partition.name}", "test_fraction", needed)
    named = [measure.name for measure in plan.measures_of_round if measure.from_outputs]
    if named and dataset.test is None and method.classifies:
        wanted = "measures per client, as no test samples belong to no client"
        raise bad_value(f"setting {setting.name}", "evaluate.measures", named[0], wanted)
    if method.classifies and dataset.test is None and not (personal and partition.test):
        why = (
            "there are no test samples: the data set has no test set: expected a "
            "partition with a `test_fraction`, and `evaluate: {clients: true}`"
        )
        raise refusal("evaluate", why, "test_fraction", code="missing")
    together = personal and arithmetic.scores_together(setting, spec.data_size)
    if together:
        rows = torch.tensor(differing(dataset.train.x)[:FEW], device=training.y.device)
        together = not mixes_when_testing(plan.federation.context.net, training.at(rows)[0])
    device = spec.execution.device
    test = TensorSamples.of(dataset.test, plan.networks.scaling, device) if dataset.test else None
    chosen_on = partition.validation or []
    tests = ClientSamples(training, partition.test) if personal and partition.test else None
    return replace(
        plan,
        test=test,
        group_tests=[test.some(rows) for rows in _groups(dataset, setting)] if test else [],
        client_tests=tests,
        validation=training.some(np.concatenate(chosen_on)) if chosen_on else None,
        client_validations=ClientSamples(training, chosen_on) if personal and chosen_on else None,
        together=together,
    )


def _groups(dataset: Dataset, setting: Setting) -> list[NDArray[np.int64]]:
    """The test samples of each group, if the setting scores groups.

    Raises:
        UserError: if the test samples have no groups.
    """
    wanted, test = setting.evaluate, dataset.test
    if not wanted.groups:
        return []
    if test is None or test.group is None:
        expectation = f"false for {dataset.name}: its test samples have no groups"
        raise bad_value(f"setting {setting.name}", "evaluate.groups", True, expectation)
    classes = range(dataset.classes)
    groups = [np.flatnonzero(test.group == group) for group in np.unique(test.group)]
    if not wanted.per_class:
        return groups
    if test.y.dtype.kind == "f":
        expectation = f"none for {dataset.name}: its samples have no classes"
        raise bad_value(
            f"setting {setting.name}", "evaluate.per_class", wanted.per_class, expectation
        )
    return [
        np.sort(
            np.concatenate([own[test.y[own] == label][: wanted.per_class] for label in classes])
        )
        for own in groups
    ]


def _optimizer(spec: OptimizerSpec) -> Optimizer:
    if spec.name == "adam":
        return adam(*spec.betas, spec.weight_decay)
    return sgd(spec.momentum, spec.weight_decay)


def _inputs(dataset: Dataset, partition: Partition, scaling: Scaling) -> Inputs:
    """What the samples look like, and which classes no client has."""
    images = dataset.train.x.dtype == np.uint8
    labels = dataset.train.y
    one_each = labels.ndim == 1 and labels.dtype.kind != "f"  # texts have a word at each place
    classes = dataset.classes if one_each else 0
    held: set[int] = set()
    for rows in partition.train if classes else []:
        held.update(np.unique(labels[rows]).tolist())
    return Inputs(
        shape=tuple(dataset.input_shape),
        classes=classes,
        range=scaling.range if images else None,
        span=scaling.span if images else None,
        unheld=tuple(sorted(set(range(classes)) - held)),
    )


def _sampler(setting: Setting, clients: int, size: int) -> Callable[[int], list[int]] | None:
    """A function that samples cohorts of ``size``, if the setting does not use the run's seed."""
    if setting.cohorts is None:
        return None
    module = papers.load("cohorts", setting.cohorts.stream)
    sampler: Callable[[int], list[int]] = module.sampler(
        setting.cohorts.seed, clients, size, setting.rounds
    )
    return sampler


def _availability(setting: Setting, seed: int, clients: ClientData) -> Availability | None:
    """What the setting says of it, with each client's number of steps."""
    if setting.availability is None:
        return None
    steps = tuple(steps_per_epoch(size, setting.batch_size) for size in clients.sizes)
    return Availability(seed, steps, **dict(setting.availability))
