"""Models of how a run is scored: when, until when, and its synthetic set after it."""

from typing import Annotated, Self

from pydantic import Field, ValidationInfo, model_validator

from fedrepro.config.metrics import named
from fedrepro.config.values import Name
from fedrepro.measures import registry
from fedrepro.support.plugins import NONE
from fedrepro.support.typed_yaml import PositiveReal, PositiveWhole, Real, Typed, expected, later

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
