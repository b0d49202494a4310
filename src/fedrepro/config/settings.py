"""Models of the settings of experiment files, with the mappings that a setting's keys have.

In order: where inputs of methods come from, what befalls clients, how a run is scored, the clients'
optimizer, and the setting itself, with its readings.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from fedrepro.config.config_file import Resources
from fedrepro.config.metrics import named
from fedrepro.config.values import (
    Hyperparameters,
    LocalSetting,
    MethodName,
    Name,
    NonNegativeReal,
    Scalar,
)
from fedrepro.data.partition.schemes import PartitionSpec
from fedrepro.measures import registry
from fedrepro.support import papers
from fedrepro.support.errors import nearest, refusal
from fedrepro.support.names import RELEASED, SettingName
from fedrepro.support.old_names import FIRST_NAMES
from fedrepro.support.plugins import NONE, Folders
from fedrepro.support.typed_yaml import (
    Fraction,
    PositiveReal,
    PositiveWhole,
    Real,
    Seed,
    Share,
    TwoOrMore,
    Typed,
    Whole,
    expected,
    later,
    like,
    plain_or,
    validate,
)


class ArtifactFromRun(Typed):
    """An artifact of another run.

    Attributes:
        setting: a setting of this file.
        method: the method of the run that makes the artifact.
        seed: Default: the seed of the run that uses it.
    """

    setting: LocalSetting
    method: MethodName
    seed: Seed | None = None


class ArtifactFromFile(Typed):
    """A model.safetensors file of a run, or in the same format.

    Attributes:
        file: its path, relative to the workbench's root.
        sha256: required: the file is not read without it.
    """

    file: Path
    sha256: (
        Annotated[str, *like("^[0-9a-f]{64}$", "the SHA-256 of the file, 64 digits of 0-9 and a-f")]
        | None
    ) = None


class ArtifactFromData(Typed):
    """Training samples of another data set, without labels.

    Attributes:
        dataset: a data set of config/datasets.yaml.
        share: fraction of each class, chosen as for a partition's `server`.
    """

    dataset: Name
    share: Fraction = 1.0


ArtifactSource = Annotated[
    Annotated[Literal["server"], Tag("plain")]
    | Annotated[ArtifactFromRun, Tag("ArtifactFromRun")]
    | Annotated[ArtifactFromFile, Tag("ArtifactFromFile")]
    | Annotated[ArtifactFromData, Tag("ArtifactFromData")],
    plain_or(ArtifactFromRun, file=ArtifactFromFile, dataset=ArtifactFromData),
]


class Noise(Typed):
    """Label noise: `pair` replaces a label by the next class, `symmetric` by any other.

    Attributes:
        kind: which wrong label replaces a label.
        rate: the probability that a label is wrong.
        everywhere: also flip clients' test labels, as SuPerFed's code does.
    """

    kind: Literal["pair", "symmetric"]
    rate: Share
    everywhere: bool = False


class AttackSpec(Typed):
    """Clients that attack the training, the same in all rounds, drawn with the run's seed.

    `label_flip` trains on labels y replaced by classes - 1 - y. The others change what a client
    sends: `sign_flip` to its update times -scale, `gaussian` to normal numbers of standard
    deviation `scale`, `inner_product` to the mean of the round's honest updates times -scale.

    Attributes:
        kind: what attackers do.
        share: the share of all clients that attack, rounded down.
        scale: the factor, or of gaussian the standard deviation.
    """

    kind: Literal["label_flip", "sign_flip", "gaussian", "inner_product"]
    share: Share
    scale: PositiveReal = 1.0

    @model_validator(mode="after")
    def _scaled(self) -> Self:
        if self.kind == "label_flip" and "scale" in self.model_fields_set:
            raise ValueError("no `scale` with label_flip, which changes labels only")
        return self


class AvailabilitySpec(Typed):
    """Which clients can be asked in a round, and how much of their work they get done.

    Attributes:
        dropout: the probability that a client drops out after it was asked.
        partial: the probability that a client does only part of its steps, a uniform share.
        deadline: how long the server waits; the mean number of steps takes 1 at speed 1.
        spread: standard deviation of the logarithm of clients' speeds, with a deadline.
        late: whether a late client is dropped, or sends what it has done by the deadline.
        period: rounds in a day; a client can be asked in half of each day.
    """

    dropout: Share = 0.0
    partial: Annotated[
        Real, Field(ge=0, le=1), expected("a number of at least 0 and at most 1")
    ] = 0.0
    deadline: PositiveReal | None = None
    spread: NonNegativeReal = 0.0
    late: Literal["dropped", "partial"] = "dropped"
    period: TwoOrMore | None = Field(default=None, serialization_alias="day")

    @model_validator(mode="after")
    def _with_a_deadline(self) -> Self:
        if self.deadline is None and {"spread", "late"} & self.model_fields_set:
            raise ValueError("`spread` and `late` with a `deadline` only")
        return self

    @property
    def loses(self) -> bool:
        """Return True if a round may lack the update of a client."""
        late = self.deadline is not None and self.late == "dropped"
        return self.dropout > 0 or late or self.period is not None


class Cohorts(Typed):
    """Cohorts sampled as in a released code, independent of the run's seed.

    ``numpy_legacy`` is SuPerFed's: one call of numpy.random.choice per round, from a generator
    seeded once. A stream is a file of its paper's package (:mod:`fedrepro.support.papers`).

    Attributes:
        stream: whose code samples them.
        seed: of the generator that samples them.
    """

    stream: str = Field(json_schema_extra={"enum": [*papers.files_of("cohorts")]})
    seed: Seed

    @field_validator("stream")
    @classmethod
    def _known(cls, name: str) -> str:
        known = papers.files_of("cohorts")
        if name not in known:
            raise ValueError(f"one of {', '.join(known)}{nearest(name, known)}")
        return name


OwnMeasure = Annotated[str, named("client", "round", among=registry.is_own)[0]]


class Evaluate(Typed):
    """When the model is evaluated, and on which data.

    Attributes:
        every: rounds between evaluations.
        clients: also evaluate on each client's test split.
        groups: evaluate each of the data set's groups, such as domains, and use their mean.
        per_class: use at most this many test samples (the first) of each class in each group.
        measures: names of the measure plug-ins to record.
    """

    every: PositiveWhole = 1
    clients: bool = False
    groups: bool = later(False)
    per_class: PositiveWhole | None = later(None)
    measures: list[OwnMeasure] = later([])

    @model_validator(mode="after")
    def _as_they_go_together(self, info: ValidationInfo) -> Self:
        if self.per_class and not self.groups:
            raise ValueError("`per_class` only with `groups: true`")
        if len(set(self.measures)) < len(self.measures):
            raise ValueError("each measure in `measures` once")
        for name in () if self.clients else self.measures:
            measure = registry.the(name, "client", "round", folders=info.context or NONE)
            if measure.per == "client" and measure.from_outputs:
                raise ValueError(f"`clients: true` with {name}, which needs their test samples")
        return self


class Stop(Typed):
    """When a run ends before its last round. With both keys, whichever comes first.

    What counts is the score of an evaluated round: on clients' validation samples if they hold any
    out, otherwise on test samples, as in tables.

    Attributes:
        measure: which score; of clients, their mean weighted by samples. Default: accuracy; loss
            with the task regression.
        at: the score at which it ends, as tables show it: 97 is 97 %.
        patience: it ends after this many evaluations without one better than all before.
    """

    measure: Annotated[str, *named("client", "round", among=lambda each: each.in_rounds)] = (
        "accuracy"
    )
    at: Annotated[Real, Field(allow_inf_nan=False), expected("a number")] | None = later(None)
    patience: PositiveWhole | None = later(None)

    @model_validator(mode="after")
    def _one_of_them(self, info: ValidationInfo) -> Self:
        if self.at is None and self.patience is None:
            raise ValueError("`at`, `patience` or both")
        measure = registry.the(self.measure, "client", "round", folders=info.context or NONE)
        if self.at is not None and measure.unit == "%" and not 1 < self.at <= 100:
            wanted = f"`at` in percent, above 1 and up to 100, for {self.measure}"
            raise ValueError(f"{wanted} (`measure: loss` for others)")
        return self


class Evaluator(Typed):
    """How to evaluate a run's synthetic set after the run; not part of the run.

    Attributes:
        model: the classifier: one is trained on the synthetic set, another on real data.
        epochs: maximum; stops at convergence.
        real_epochs: epochs of the classifier that is trained on real data.
        batch_size: samples in a mini-batch of both classifiers.
        lr: learning rate of Adam.
        fid: also compute the Fréchet inception distance, if Inception's weights exist.
    """

    model: Name
    epochs: PositiveWhole = 500
    real_epochs: PositiveWhole = 5
    batch_size: PositiveWhole = 64
    lr: PositiveReal = 0.001
    fid: bool = False


BETAS = (0.9, 0.999)


class OptimizerSpec(Typed):
    """The clients' optimizer.

    Attributes:
        lr: the learning rate.
        momentum: of sgd. Clients start every round with a momentum of zero.
        weight_decay: the factor of the parameters that is added to the gradient.
        name: the algorithm.
        betas: Adam's.
    """

    lr: PositiveReal
    momentum: Share = 0.0
    weight_decay: NonNegativeReal = 0.0
    name: Literal["sgd", "adam"] = later("sgd")
    betas: tuple[Share, Share] = later(BETAS)

    @model_validator(mode="after")
    def _its_own_keys(self) -> Self:
        if self.name == "adam" and self.momentum:
            raise ValueError("`momentum` with sgd only: adam has `betas`")
        if self.name == "sgd" and self.betas != BETAS:
            raise ValueError("`betas` with adam only")
        return self


class StepDecay(Typed):
    """A learning rate that is multiplied by ``factor`` after every ``every`` rounds.

    Attributes:
        factor: what the learning rate is multiplied by.
        every: rounds with the same learning rate.
    """

    factor: Fraction
    every: PositiveWhole


Decay = Annotated[
    Annotated[Fraction, Tag("plain")] | Annotated[StepDecay, Tag("StepDecay")], plain_or(StepDecay)
]


DecayFrom = Annotated[Literal[0, 1], expected("0 or 1")]


class ReleasedOverrides(Typed):
    """Keys of a setting that differ in the released code.

    Attributes:
        partition: replaces the whole partition.
        model: replaces the model.
        rounds: replaces the number of rounds.
        batch_size: replaces the mini-batch's size.
        optimizer: replaces the clients' optimizer.
        lr_decay: replaces the decay of the learning rate.
        decay_from: replaces the exponent of the decay in the first round.
        cohorts: replaces the sampling of cohorts.
        noise: replaces the label noise.
        methods: replaces the setting's hyperparameters.
    """

    partition: PartitionSpec | None = None
    model: Name | None = None
    rounds: PositiveWhole | None = None
    batch_size: PositiveWhole | None = None
    optimizer: OptimizerSpec | None = None
    lr_decay: Decay | None = None
    decay_from: DecayFrom | None = None
    cohorts: Cohorts | None = None
    noise: Noise | None = None
    methods: dict[str, Hyperparameters] | None = None


if TYPE_CHECKING:
    OfPapers = Typed
else:
    OfPapers = create_model("OfPapers", __base__=(*papers.keys_of_settings(), Typed))


def _known_loss(name: str, info: ValidationInfo) -> str:
    known = (info.context or NONE).names("losses")
    if name not in known:
        raise ValueError(f"the name of a file in plugins.losses{nearest(name, known)}")
    return name


def _part_in(annotation: Any) -> type[Typed] | None:
    """The kind of mapping that an optional key may have."""
    kinds = (kind for kind in get_args(annotation) if isinstance(kind, type))
    return next((kind for kind in kinds if issubclass(kind, Typed)), None)


@cache  # a workbench changes hundreds of settings, and a model takes milliseconds to build
def _alone(key: str) -> type[Typed]:
    """The model of a mapping that has one key of a setting."""
    info = Setting.model_fields[key]
    definition: Any = {key: (info.annotation, info)}
    return create_model("Key", __base__=Typed, **definition)


class Setting(OfPapers):
    """A data set, partition, model, optimizer and number of rounds.

    Attributes:
        extends: a setting of this file that supplies all missing keys.
        dataset: a data set of config/datasets.yaml; `fedrepro datasets` lists them.
        partition: how samples are divided among clients: a scheme and its keys.
        model: a model; `fedrepro models` lists them.
        rounds: rounds of communication.
        participation: the fraction of clients in a round's cohort.
        epochs: local epochs per round.
        batch_size: samples in a client's mini-batch.
        optimizer: the clients' optimizer. A server optimizer is part of the method's name.
        lr_decay: factor on the learning rate, each round or every few rounds.
        lr_schedule: factors on the learning rate, one per round, the last for all further ones;
            `cosine`: from 1 to 0 along half a cosine, as PyTorch's CosineAnnealingLR over all
            rounds.
        decay_from: exponent of the decay in the first round: 1 if a code counts rounds from 1.
        cohorts: replaces the cohorts sampled with the run's seed.
        evaluate: when models are evaluated, and on which samples.
        noise: wrong labels among clients' training samples.
        attack: clients that attack the training.
        availability: clients that drop out, are late, do part of their work, or sleep. Default:
            none.
        loss: a loss of your own, a file in `plugins.losses`, in place of the task's.
        class_weights: the weight of each class in the training loss; `balanced`: samples by classes
            times the class's samples, of all clients' training samples. With the task multi_label:
            of the samples that have a label; `balanced`: those without it by those with it.
        scaling: scale images to [0, 1] or [-1, 1], not by the data set's mean and standard
            deviation.
        augment: mirror each training image with probability 1/2.
        precision: precision of matrix products and convolutions in training; `tf32` on a GPU only.
            Numbers of each differ, and pages mark them.
        inputs: inputs of methods: the server's samples, an artifact of a run, a file, or a data
            set.
        stop: when a run ends before its last round: at a score, or without further gain.
        save_models_at: by method, the rounds after which all clients' models and the server's are
            saved.
        evaluator: how to evaluate a run's synthetic set; not part of the run.
        resources: what its runs request from a cluster; not part of the run.
        note: a caveat that pages show next to its numbers; not part of the run.
        stands_for: the paper's setting that a compact one stands for; not part of the run.
        methods: hyperparameters that differ in this setting, by part name.
        released: keys that differ in the released code, by the number of the discrepancy;
            `NAME@released` is the setting with them.
    """

    extends: str | None = None
    dataset: Name
    partition: PartitionSpec
    model: Name
    rounds: PositiveWhole
    participation: Fraction
    epochs: Annotated[Whole, Field(ge=1, le=10**5), expected("a whole number from 1 to 100000")]
    batch_size: PositiveWhole
    optimizer: OptimizerSpec
    lr_decay: Decay = 1.0
    lr_schedule: Annotated[
        Literal["cosine"] | list[NonNegativeReal] | None,
        expected("'cosine', or a list of factors of at least 0"),
    ] = later(None)
    decay_from: DecayFrom = later(0)
    cohorts: Cohorts | None = later(None)
    evaluate: Evaluate = Evaluate()
    noise: Noise | None = later(None)
    attack: AttackSpec | None = later(None)
    availability: AvailabilitySpec | None = later(None)
    loss: Annotated[str, AfterValidator(_known_loss)] | None = later(None)
    class_weights: Annotated[
        Literal["balanced"] | list[PositiveReal] | None,
        expected("'balanced', or a list of numbers above 0, one for each class"),
    ] = later(None)
    scaling: Literal["unit", "symmetric"] | None = later(None)
    augment: Literal["flip"] | None = later(None)
    precision: Literal["float32", "tf32", "bfloat16"] = later("float32")
    inputs: dict[Name, ArtifactSource] = later({}, first_name="given")
    stop: Stop | None = later(None)
    save_models_at: dict[MethodName, list[PositiveWhole]] = later({}, first_name="keep")
    evaluator: Evaluator | None = Field(default=None, exclude=True)
    resources: Resources = Field(default=Resources(), exclude=True)
    note: str = Field(default="", exclude=True)
    stands_for: Name | None = Field(default=None, exclude=True)
    methods: dict[str, Hyperparameters] = Field(default={})
    released: dict[str, ReleasedOverrides] = Field(default={}, exclude=True)
    _name: str = PrivateAttr(default="")

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        self._refuse_conflicts()
        return self

    def _refuse_conflicts(self) -> None:
        """Raise ValueError for keys of which one would be ignored."""
        decays = self.lr_decay != 1.0 or self.decay_from
        if self.lr_schedule is not None and (decays or not self.lr_schedule):
            without = "`lr_decay` or `decay_from`"
            raise ValueError(f"`lr_schedule` of at least one factor, without {without}")
        if self.loss and self.class_weights:
            raise ValueError("`class_weights` without `loss`: put the weights into the loss")

    @model_validator(mode="after")
    def _each_key_once(self) -> Self:
        keys = [key for part in self.released.values() for key in part.model_fields_set]
        if len(set(keys)) < len(keys):
            raise ValueError("each key at most once under `released`")
        return self

    @property
    def name(self) -> str:
        """``<system>/<setting>``, with ``@released`` in that reading."""
        return self._name

    @property
    def system(self) -> str:
        """The system whose experiment file has it."""
        return SettingName.parse(self._name).system

    @property
    def local_name(self) -> str:
        """Its name without the system's."""
        return SettingName.parse(self._name).local

    def unneeded_key(self, artifacts: Sequence[str]) -> tuple[str, str] | None:
        """A key that is set, and the artifact without which it has no effect; if there is one."""
        for key in self.keys_of_papers:
            for mark in type(self).model_fields[key].metadata:
                if isinstance(mark, papers.Needs) and mark.artifact not in artifacts:
                    return key, mark.artifact
        return None

    @property
    def keys_of_papers(self) -> tuple[str, ...]:
        """Its keys for which a paper's package changes a run's inputs."""
        return tuple(key for key in papers.files_of("given") if getattr(self, key))

    def ends_before(self, accuracy: float) -> bool:
        """Whether a run may reach `stop.at` before this test accuracy, in percent."""
        if self.stop is None or self.stop.at is None or not accuracy:
            return False
        on_test = self.stop.measure == "accuracy" and not self.partition.validation
        return not on_test or accuracy > self.stop.at

    def with_task_defaults(self, task: str) -> "Setting":
        """The setting for data of a task: without accuracies, a stop that names none is by loss."""
        if task != "regression" or not self.stop or "measure" in self.stop.model_fields_set:
            return self
        return self.model_copy(update={"stop": self.stop.model_copy(update={"measure": "loss"})})

    def as_released(self) -> "Setting":
        """The setting with the released code's values."""
        parts = self.released.values()
        keys = {key: getattr(part, key) for part in parts for key in part.model_fields_set}
        reading = self.model_copy(update={**keys, "released": {}})
        return reading.called(self.local_name + RELEASED)

    def validated(self, name: str, share: float, variants: dict[str, Hyperparameters]) -> "Setting":
        """The setting in which clients keep a share of their training samples for validation.

        Args:
            name: of the reading, without its system.
            variants: the searched methods' hyperparameters, added to the setting's.
        """
        partition = self.partition.model_copy(update={"validation": share})
        update = {"partition": partition, "methods": {**self.methods, **variants}}
        return self.model_copy(update={**update, "inputs": {**self.inputs}}).called(name)

    def called(self, name: str) -> "Setting":
        """The same under another name, without its system."""
        same = self.model_copy()
        same._name = str(SettingName(self.system, name))
        return same

    @property
    def scalars(self) -> dict[str, Scalar]:
        """The value of every key of a run that is one word or number, such as ``optimizer.lr``."""
        values: dict[str, Scalar] = {}
        for first, info in type(self).model_fields.items():
            value = getattr(self, first)
            if info.exclude or first == "extends":
                continue
            if isinstance(value, Typed):
                values |= {
                    f"{first}.{name}": getattr(value, name) for name in type(value).model_fields
                }
            elif part := _part_in(info.annotation) if value is None else None:
                values |= {f"{first}.{name}": None for name in part.model_fields}
            else:
                values[first] = value
        return {key: each for key, each in values.items() if isinstance(each, Scalar)}

    def named(self, key: str) -> list[str]:
        """The keys that a name stands for: ``lr``, as nothing else is called so, for its one."""
        known = self.scalars
        for new, first in FIRST_NAMES.items():
            key = new if f".{first}".endswith(f".{key}") else key
        return [key] if key in known else [each for each in known if each.rpartition(".")[2] == key]

    def with_keys(self, values: Mapping[str, Any], folders: Folders = NONE) -> "Setting":
        """The setting with other values of :attr:`scalars`.

        Args:
            own: folders of plug-ins.

        Raises:
            UserError: for a value that the key can't have, or not beside the others.
        """
        changes: dict[str, Any] = {}
        for key, value in values.items():
            first, _, name = key.partition(".")
            if name:
                part = getattr(self, first)
                written = part.model_dump(exclude_unset=True, by_alias=False) if part else {}
                changes[first] = changes.get(first, written) | {name: value}
            else:
                changes[first] = value
        for first, content in changes.items():
            alone = validate(_alone(first), {first: content}, self._name, folders)
            changes[first] = getattr(alone, first)
        copied = self.model_copy(update=changes)
        try:
            copied._refuse_conflicts()
        except ValueError as error:
            raise refusal(self._name, f"expected {error}") from None
        return copied

    def partition_path(self, seed: int) -> Path:
        """The partition's file, which all methods share."""
        folder = Path("results/partitions") / self.dataset / self.partition.name
        return folder / f"seed{seed}.npz"
