"""The sizes of clients' shares, estimated from what the catalogue says of a data set."""

import math
from dataclasses import dataclass

from fedrepro.config.settings import Setting
from fedrepro.data.catalogue.entries import DataSize


@dataclass(frozen=True)
class DataShares:
    """The sizes of a partition; estimates unless they are ``counted``.

    Attributes:
        train, test: samples of all clients together.
        steps: of all clients together, in one local epoch.
        validation: validation samples of all clients together.
    """

    clients: int
    train: int
    test: int
    steps: float
    counted: bool
    validation: int = 0


def estimated_shares(setting: Setting, data: DataSize) -> DataShares | None:
    """The expected shares of a scheme; with uneven ones, half a mini-batch more for each client.

    None if the number of clients is unknown.
    """
    scheme = setting.partition
    within = getattr(scheme, "within", None)
    if within is not None:  # the scheme for each of the domains
        clients = data.clients and within.clients and data.clients * within.clients
    else:
        clients = scheme.clients or data.clients
    if not clients:
        return None
    samples = data.train
    if scheme.scheme == "natural" and scheme.clients and data.clients:  # some of them
        samples = round(samples * min(1.0, scheme.clients / data.clients))
    samples = round(samples * getattr(scheme, "share", 1.0))  # the server alone
    samples -= round(samples * scheme.server)
    test = round(samples * scheme.test_fraction)
    train = samples - test
    kept = round(train * scheme.validation)
    train -= kept
    even = scheme.scheme in ("iid", "shards", "paired_shards", "at_server")
    size = train / clients / setting.batch_size
    steps = clients * (math.ceil(size) if even else size + 0.5)
    return DataShares(clients, train, test, steps, False, kept)


def cohort_size(setting: Setting, clients: int) -> int:
    """Clients in a cohort, as in :func:`fedrepro.run.assembly.make_plan`."""
    return max(1, int(setting.participation * clients + 1e-9))
