"""Models of what befalls a setting's clients: wrong labels, attacks, absence, cohorts of others."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedrepro.config.values import NonNegativeReal
from fedrepro.support import papers
from fedrepro.support.errors import nearest
from fedrepro.support.typed_yaml import PositiveReal, Real, Seed, Share, TwoOrMore, Typed, expected


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
        """Whether a round may lack the update of a client."""
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
