"""Models of what befalls a setting's clients: wrong labels, attacks, absence, cohorts of others."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedrepro.config.values import NonNegativeReal, PositiveReal, Seed
from fedrepro.data.partition.schemes import Share
from fedrepro.support import papers
from fedrepro.support.errors import nearest
from fedrepro.support.typed_yaml import Real, Typed, Whole, expected


class Noise(Typed):
    """Label noise: `pair` replaces a label by the next class, `symmetric` by any other."""

    kind: Literal["pair", "symmetric"] = Field(description="Which wrong label replaces a label.")
    rate: Share = Field(description="The probability that a label is wrong.")
    everywhere: bool = Field(
        default=False, description="Also flip clients' test labels, as SuPerFed's code does."
    )


class AttackSpec(Typed):
    """Clients that attack the training, the same in all rounds, drawn with the run's seed.

    `label_flip` trains on labels y replaced by classes - 1 - y. The others change what a client
    sends: `sign_flip` to its update times -scale, `gaussian` to normal numbers of standard
    deviation `scale`, `inner_product` to the mean of the round's honest updates times -scale.
    """

    kind: Literal["label_flip", "sign_flip", "gaussian", "inner_product"] = Field(
        description="What attackers do."
    )
    share: Share = Field(description="The share of all clients that attack, rounded down.")
    scale: PositiveReal = Field(
        default=1.0, description="The factor, or of gaussian the standard deviation."
    )

    @model_validator(mode="after")
    def _scaled(self) -> Self:
        if self.kind == "label_flip" and "scale" in self.model_fields_set:
            raise ValueError("no `scale` with label_flip, which changes labels only")
        return self


class AvailabilitySpec(Typed):
    """Which clients can be asked in a round, and how much of their work they get done."""

    dropout: Share = Field(
        default=0.0, description="The probability that a client drops out after it was asked."
    )
    partial: Annotated[
        Real, Field(ge=0, le=1), expected("a number of at least 0 and at most 1")
    ] = Field(
        default=0.0,
        description="The probability that a client does only part of its steps, a uniform share.",
    )
    deadline: PositiveReal | None = Field(
        default=None,
        description="How long the server waits; the mean number of steps takes 1 at speed 1.",
    )
    spread: NonNegativeReal = Field(
        default=0.0,
        description="Standard deviation of the logarithm of clients' speeds, with a deadline.",
    )
    late: Literal["dropped", "partial"] = Field(
        default="dropped",
        description="Whether a late client is dropped, or sends what it has done by the deadline.",
    )
    period: Annotated[Whole, Field(ge=2), expected("a whole number of at least 2")] | None = Field(
        default=None,
        serialization_alias="day",
        description="Rounds in a day; a client can be asked in half of each day.",
    )

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
    """

    stream: str = Field(
        description="Whose code samples them.",
        json_schema_extra={"enum": [*papers.files_of("cohorts")]},
    )
    seed: Seed = Field(description="Of the generator that samples them.")

    @field_validator("stream")
    @classmethod
    def _known(cls, name: str) -> str:
        known = papers.files_of("cohorts")
        if name not in known:
            raise ValueError(f"one of {', '.join(known)}{nearest(name, known)}")
        return name
