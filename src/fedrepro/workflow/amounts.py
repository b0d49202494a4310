"""The sizes of data sets and of clients' shares, as far as known before a run."""

import math
from dataclasses import dataclass
from pathlib import Path

from fedrepro.config.settings import Setting
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import PREPARED, open_dataset
from fedrepro.data.partition.partition import PLACE
from fedrepro.support import sealed
from fedrepro.support.errors import UserError

WIDTHS = {"bytes": 1, "sound": 2, "features": 4, "words": 4}  # bytes of one number
NUMBERS = {"uint8": "bytes", "int16": "sound", "float32": "features", "int32": "words"}


@dataclass(frozen=True)
class Data:
    """The size of a data set. If it is not ``prepared``, the catalogue's numbers.

    Attributes:
        clients: natural clients, always from the catalogue; None if there are none or unknown.
    """

    train: int
    test: int
    shape: tuple[int, ...]
    numbers: str
    classes: int
    clients: int | None
    prepared: bool

    @property
    def sample_bytes(self) -> int:
        return math.prod(self.shape) * WIDTHS[self.numbers] + 8  # and the label


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


def data_of(bench: Workbench, name: str) -> Data | None:
    """The size of a data set; None if it is not prepared and the catalogue does not state it.

    Raises:
        UserError: if it is damaged.
    """
    holds = bench.datasets[name].holds
    if (bench.root / PREPARED / name / "meta.json").exists():
        found = open_dataset(name, bench.root / PREPARED)
        test, numbers = found.test, NUMBERS[found.train.x.dtype.name]
        sizes = len(found.train), len(test) if test else 0
        clients = holds.clients if holds else None
        return Data(*sizes, found.input_shape, numbers, found.classes, clients, True)
    if holds is None:
        return None
    sizes = holds.train, holds.test
    return Data(*sizes, holds.shape, holds.numbers, holds.classes, holds.clients, False)


def counted_shares(path: Path, batch_size: int) -> DataShares:
    """The shares in a partition's histogram (.json).

    Raises:
        UserError: if it is damaged.
    """
    try:
        about = sealed.read(path, sealed.place(path, PLACE))
        train = [round(math.fsum(client)) for client in about["train"]]
        test, kept = (
            round(math.fsum(map(math.fsum, about.get(part) or [])))
            for part in ("test", "validation")
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged: {error}: {sealed.AGAIN}") from None
    steps = sum(-(-size // batch_size) for size in train)
    return DataShares(len(train), sum(train), test, steps, True, kept)


def estimated_shares(setting: Setting, data: Data) -> DataShares | None:
    """The expected shares of a scheme; with uneven ones, half a mini-batch more for each client.

    None if the number of clients is unknown.
    """
    scheme = setting.partition
    clients = getattr(scheme, "within", scheme).clients or data.clients
    if clients is None:
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
