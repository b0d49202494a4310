"""Keys of settings that only FedGO's experiment file uses."""

from typing import Annotated

from fedrepro.config.values import NonNegativeWhole
from fedrepro.support.papers import Needs
from fedrepro.support.typed_yaml import Typed, later


class Keys(Typed):
    """Byzantine clients (:mod:`fedrepro.papers.fedgo.given_byzantine`)."""

    byzantine: Annotated[NonNegativeWhole, Needs("discriminators")] = later(
        0, "How many clients, drawn with the seed, give discriminators that output 1 for any input."
    )
