"""Which samples each client holds.

The functions named after a scheme are pure apart from the random state that they are given, and
draw from it in the order of the code that published results come from, so that a seed gives the
same clients: numpy's legacy generator (`np.random.RandomState(seed)`, the stream of
`np.random.seed(seed)`), FedLab's functions as copied by FedIMA and FedDF's grouped partitioner.
"""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from fedrepro.data.schemes import (
    ClientDirichlet,
    Dirichlet,
    GroupedDirichlet,
    Iid,
    Labels,
    Natural,
    PairedShards,
    PartitionSpec,
    Shards,
)
from fedrepro.errors import UserError, bad_value
from fedrepro.files import write_atomically

__all__ = ["Partition", "PartitionSpec", "make_partition"]

Indices = NDArray[np.int64]

DIRICHLET_TRIES = 2_000
GROUP_SIZE = 10  # n_auxi_workers in FedDF's code


@dataclass(frozen=True)
class Partition:
    """Each client's samples, as indices into the training split.

    Attributes:
        train: one int64 array for each client.
        test: the same for the samples that clients hold out, or None.
        train_counts: int64 [clients, classes], how many samples of each class.
        test_counts: the same for `test`.
        spec: the scheme with all its keys.
    """

    train: list[Indices]
    test: list[Indices] | None
    train_counts: Indices
    test_counts: Indices | None
    spec: dict[str, Any]
    name: str
    seed: int

    def fits(self, labels: NDArray[Any]) -> bool:
        """Whether samples with these classes are those that were shared out."""
        labels = _one_dimensional(labels)
        for rows, counts in ((self.train, self.train_counts), (self.test, self.test_counts)):
            if rows is None or counts is None:
                continue
            if max(int(each.max(initial=0)) for each in rows) >= len(labels):
                return False
            if not np.array_equal(_counts(rows, labels, counts.shape[1]), counts):
                return False
        return True

    def save(self, path: Path) -> None:
        """Write `path` (.npz) and the classes of each client beside it (.json).

        Equal partitions give equal bytes.

        Raises:
            UserError: when the disk refuses.
        """
        arrays = {"train": np.concatenate(self.train), "train_ends": _ends(self.train)}
        arrays["train_counts"] = self.train_counts
        if self.test is not None and self.test_counts is not None:
            arrays |= {"test": np.concatenate(self.test), "test_ends": _ends(self.test)}
            arrays["test_counts"] = self.test_counts
        histogram = {
            "name": self.name,
            "spec": self.spec,
            "seed": self.seed,
            "clients": len(self.train),
            "classes": int(self.train_counts.shape[1]),
            "train": self.train_counts.tolist(),
            "test": None if self.test_counts is None else self.test_counts.tolist(),
        }
        with write_atomically(path.with_suffix(".json")) as temporary:
            temporary.write_text(json.dumps(histogram, sort_keys=True) + "\n", encoding="utf-8")
        # The .npz comes last: whoever sees it sees the histogram as well.
        with write_atomically(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for key, array in arrays.items():
                # A member's default date is a constant, whereas np.savez leaves that unsaid.
                with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    @staticmethod
    def load(path: Path) -> "Partition":
        """Read what `save` wrote.

        Raises:
            UserError: when a file is missing or damaged.
        """
        try:
            about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                held_out = "test" in arrays
                return Partition(
                    train=np.split(arrays["train"], arrays["train_ends"][:-1]),
                    test=np.split(arrays["test"], arrays["test_ends"][:-1]) if held_out else None,
                    train_counts=arrays["train_counts"],
                    test_counts=arrays["test_counts"] if held_out else None,
                    spec=about["spec"],
                    name=about["name"],
                    seed=about["seed"],
                )
        except FileNotFoundError as error:
            raise UserError(f"{error.filename}: there is no such partition") from None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise UserError(f"{path}: damaged: {error}: delete it and make it again") from None


def make_partition(
    labels: NDArray[Any],
    groups: NDArray[Any] | None,
    spec: PartitionSpec,
    seed: int,
    held_out: NDArray[Any] | None = None,
) -> Partition:
    """Share out samples among clients.

    Args:
        labels: int [n], the class of each sample; of samples with several, such as the words of a
            text [n, length], only their number is shown.
        groups: int [n], each sample's natural client, for the scheme `natural`.
        spec: the scheme, as in an experiment file.
        seed: of numpy's legacy generator, so a number below 2**32.
        held_out: bool [n], the test samples that a data set itself marks, for `given_test`.

    Raises:
        UserError: when the request can't be met.
    """
    labels = np.asarray(labels)
    labels = _one_dimensional(labels)
    if labels.size == 0:
        raise UserError(f"partition {spec.name}: there are no samples to share out")
    given_test = isinstance(spec, Natural) and spec.given_test
    if given_test and held_out is None:
        raise UserError(
            f"partition {spec.name}: given_test: True: the data set marks no test samples: "
            "expected False, with a `test_fraction`"
        )
    clients = _assign(labels, groups, spec, RandomState(seed))
    _refuse_empty(clients, spec)
    test = None
    if spec.test_fraction:
        # A stream of its own: with or without held-out samples, a client holds the same ones.
        random = RandomState([seed, 1])
        pairs = [
            _hold_out_of_group(number, indices, labels, spec, seed)
            if isinstance(spec, Natural) and spec.stratified
            else _hold_out(number, indices, labels, spec, random)
            for number, indices in enumerate(clients)
        ]
        clients, test = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if given_test:
        marked = np.asarray(held_out, dtype=np.bool_)
        test = [indices[marked[indices]] for indices in clients]
        clients = [indices[~marked[indices]] for indices in clients]
        _refuse_empty(clients, spec)
    classes = int(labels.max()) + 1
    return Partition(
        train=clients,
        test=test,
        train_counts=_counts(clients, labels, classes),
        test_counts=None if test is None else _counts(test, labels, classes),
        spec=spec.model_dump(),
        name=spec.name,
        seed=seed,
    )


def _refuse_empty(clients: list[Indices], spec: PartitionSpec) -> None:
    empty = next((number for number, indices in enumerate(clients) if len(indices) == 0), None)
    if empty is not None:
        raise UserError(
            f"partition {spec.name}: client {empty} would get no samples: "
            f"expected fewer clients than {len(clients)}"
        )


def _assign(
    labels: NDArray[Any], groups: NDArray[Any] | None, spec: PartitionSpec, random: RandomState
) -> list[Indices]:
    where = f"partition {spec.name}"
    if spec.clients is not None and spec.clients > len(labels):
        samples = f"at most {len(labels)}, the number of samples"
        raise bad_value(where, "clients", spec.clients, samples)
    match spec:
        case Iid():
            return iid(len(labels), spec.clients, random)
        case Shards():
            wanted = spec.clients * spec.classes_per_client
            if wanted > len(labels):
                at_most = (
                    f"at most {len(labels) // spec.clients} ({wanted} shards need a sample each"
                )
                expectation = f"{at_most}, there are {len(labels)})"
                raise bad_value(where, "classes_per_client", spec.classes_per_client, expectation)
            return shards(labels, spec.clients, spec.classes_per_client, random)
        case PairedShards():
            if 2 * spec.clients > len(labels):
                expectation = f"at most {len(labels) // 2}, half of the number of samples"
                raise bad_value(where, "clients", spec.clients, expectation)
            return paired_shards(labels, spec.clients)
        case Dirichlet():
            if spec.minimum * spec.clients > len(labels):
                equal_share = len(labels) // spec.clients
                expectation = (
                    f"at most {equal_share} ({len(labels)} samples / {spec.clients} clients)"
                )
                raise bad_value(where, "minimum", spec.minimum, expectation)
            return dirichlet(labels, spec.clients, spec.alpha, spec.minimum, random)
        case GroupedDirichlet():
            return grouped_dirichlet(labels, spec.clients, spec.alpha, random)
        case Labels():
            classes = int(labels.max()) + 1
            if spec.classes_per_client > classes:
                expectation = f"at most {classes}, the number of classes"
                raise bad_value(where, "classes_per_client", spec.classes_per_client, expectation)
            return by_labels(labels, spec.clients, spec.classes_per_client, random)
        case ClientDirichlet():
            return client_dirichlet(labels, spec.clients, spec.alpha, random)
        case Natural():
            if groups is None:
                raise UserError(
                    f"{where}: scheme: 'natural': the data set has no groups: "
                    "expected one with a `group` column in config/datasets.yaml"
                )
            return natural(np.asarray(groups), spec.clients, random, spec.minimum)
        case _:
            assert_never(spec)


def iid(samples: int, clients: int, random: RandomState) -> list[Indices]:
    """A random permutation in parts whose sizes differ by at most one."""
    return [part.astype(np.int64) for part in np.array_split(random.permutation(samples), clients)]


def shards(
    labels: NDArray[Any], clients: int, shards_per_client: int, random: RandomState
) -> list[Indices]:
    """FedLab's shards: samples sorted by class, in equal shards; left-overs go to nobody.

    The sort is stable; the released code's is not, and its indices depend on the numpy build (B9).
    """
    order = np.argsort(labels, kind="stable").astype(np.int64)
    size = len(labels) // (clients * shards_per_client)
    dealt = random.permutation(clients * shards_per_client).reshape(clients, shards_per_client)
    return [np.concatenate([order[s * size : (s + 1) * size] for s in hand]) for hand in dealt]


def paired_shards(labels: NDArray[Any], clients: int) -> list[Indices]:
    """SuPerFed's pathological split: of 2K shards sorted by class client i holds i and i + K."""
    order = np.argsort(labels, kind="stable").astype(np.int64)
    cut = np.array_split(order, 2 * clients)
    return [np.concatenate(pair) for pair in zip(cut[:clients], cut[clients:], strict=True)]


def dirichlet(
    labels: NDArray[Any], clients: int, alpha: float, minimum: int, random: RandomState
) -> list[Indices]:
    """FedLab's `hetero_dir_partition`: Dirichlet shares with a cap of N/K and a smallest client.

    Raises:
        UserError: when no draw of `DIRICHLET_TRIES` gives every client `minimum` samples.
    """
    members = [np.flatnonzero(labels == label) for label in range(int(labels.max()) + 1)]
    for _ in range(DIRICHLET_TRIES):
        pieces, sizes = _dirichlet_draw(members, clients, alpha, len(labels), random, shuffle=True)
        if sizes.min() >= minimum:
            joined = [np.concatenate(client).astype(np.int64) for client in pieces]
            for indices in joined:
                random.shuffle(indices)
            return joined
    raise UserError(
        f"partition: dirichlet: none of {DIRICHLET_TRIES} draws gave each of {clients} clients "
        f"at least {minimum} samples at alpha {alpha:g}: lower `minimum`, or use the scheme "
        "`grouped_dirichlet`"
    )


def _dirichlet_draw(
    members: list[Indices],
    clients: int,
    alpha: float,
    samples: int,
    random: RandomState,
    *,
    shuffle: bool,
) -> tuple[list[list[Indices]], Indices]:
    """One draw: each client's piece of each class, and the clients' sizes (all 0: a void draw)."""
    pieces: list[list[Indices]] = [[] for _ in range(clients)]
    sizes = np.zeros(clients, dtype=np.int64)
    for member in members:
        if shuffle:
            member = member.copy()
            random.shuffle(member)
        shares = random.dirichlet(np.full(clients, alpha)) * (sizes < samples / clients)
        total = shares.sum()
        if not total > 0:  # every client with a share has its fill, or alpha is so small that 0/0
            return pieces, np.zeros(clients, dtype=np.int64)
        cuts = (np.cumsum(shares / total) * len(member)).astype(np.int64)[:-1]
        for client, piece in enumerate(np.split(member, cuts)):
            pieces[client].append(piece)
            sizes[client] += len(piece)
    return pieces, sizes


def grouped_dirichlet(
    labels: NDArray[Any], clients: int, alpha: float, random: RandomState
) -> list[Indices]:
    """FedDF's partitioner: shuffled data in consecutive parts, one for each ten clients.

    Raises:
        UserError: when a group finds no draw that gives each client half of the mean.
    """
    order = np.arange(len(labels), dtype=np.int64)
    random.shuffle(order)
    classes = int(labels.max()) + 1
    groups = -(-clients // GROUP_SIZE)
    # All parts but the last are of one size, also when the last group has fewer clients.
    part = int(min(GROUP_SIZE, clients) / clients * len(labels))
    result = []
    for group in range(groups):
        last = group == groups - 1
        indices = order[group * part : None if last else (group + 1) * part]
        members = clients - group * GROUP_SIZE if last else GROUP_SIZE
        result += _one_group(indices, labels[indices], classes, members, alpha, random)
    return result


def _one_group(
    indices: Indices,
    labels: NDArray[Any],
    classes: int,
    clients: int,
    alpha: float,
    random: RandomState,
) -> list[Indices]:
    members = [indices[labels == label] for label in range(classes)]
    least = int(0.5 * len(indices) / clients)
    for _ in range(DIRICHLET_TRIES):
        pieces, sizes = _dirichlet_draw(
            members, clients, alpha, len(indices), random, shuffle=False
        )
        if sizes.sum() and sizes.min() >= least:
            return [np.concatenate(client).astype(np.int64) for client in pieces]
    raise UserError(
        f"partition: grouped_dirichlet: {DIRICHLET_TRIES} draws at alpha {alpha:g} left a client "
        "with less than half of the mean: raise `alpha` or lower `clients`"
    )


def by_labels(
    labels: NDArray[Any], clients: int, classes_per_client: int, random: RandomState
) -> list[Indices]:
    """NIID-Bench's `#label=k` as in FedLab: client i holds class i mod C and k-1 drawn ones.

    A class is shared equally among those that hold it; one that nobody drew is left out.
    """
    classes = int(labels.max()) + 1
    held: list[list[int]] = []
    for client in range(clients):
        own = [client % classes]
        while len(own) < classes_per_client:
            drawn = int(random.randint(classes))
            if drawn not in own:
                own.append(drawn)
        held.append(own)
    pieces: list[list[Indices]] = [[] for _ in range(clients)]
    for label in range(classes):
        member = np.flatnonzero(labels == label)
        random.shuffle(member)
        holders = [client for client in range(clients) if label in held[client]]
        if holders:
            for client, piece in zip(holders, np.array_split(member, len(holders)), strict=True):
                pieces[client].append(piece)
    return [np.concatenate(client).astype(np.int64) for client in pieces]


def client_dirichlet(
    labels: NDArray[Any], clients: int, alpha: float, random: RandomState
) -> list[Indices]:
    """Equal shares N/K of samples in Dirichlet(alpha * share of each class) proportions."""
    order = [
        random.permutation(np.flatnonzero(labels == label)) for label in range(labels.max() + 1)
    ]
    left = np.array([len(member) for member in order])
    share = left / left.sum()
    dealt = []
    for _ in range(clients):
        proportions = _dirichlet_of_small(alpha * share, random)
        hand: list[Indices] = []
        wanted = len(labels) // clients
        while wanted:
            open_classes = proportions * (left > 0)
            if not open_classes.sum() > 0:
                open_classes = np.where(left > 0, share, 0.0)
            take = np.minimum(random.multinomial(wanted, open_classes / open_classes.sum()), left)
            for label in np.flatnonzero(take):
                start = len(order[label]) - left[label]
                hand.append(order[label][start : start + take[label]])
            left -= take
            wanted -= int(take.sum())
        dealt.append(np.concatenate(hand).astype(np.int64))
    return dealt


def _dirichlet_of_small(alpha: NDArray[np.float64], random: RandomState) -> NDArray[np.float64]:
    """A Dirichlet draw in logarithms: at small alpha numpy's Gamma draws underflow to 0/0.

    A Gamma(a) variable is one of Gamma(a + 1) times U ** (1 / a).
    """
    there = np.flatnonzero(alpha > 0)
    a = alpha[there]
    logs = np.log(random.standard_gamma(a + 1)) + np.log1p(-random.random_sample(len(a))) / a
    drawn = np.zeros(len(alpha))
    drawn[there] = np.exp(logs - logs.max())
    return drawn / drawn.sum()  # type: ignore[no-any-return]


def natural(
    groups: NDArray[Any], clients: int | None, random: RandomState, minimum: int = 1
) -> list[Indices]:
    """One client for each group, in the groups' order; `clients` draws so many of them.

    Raises:
        UserError: when there are fewer groups than clients.
    """
    names, sizes = np.unique(groups, return_counts=True)
    names = names[sizes >= minimum]
    if len(names) == 0:
        raise bad_value("partition natural", "minimum", minimum, f"at most {sizes.max()}")
    if clients is not None:
        if clients > len(names):
            expectation = f"at most {len(names)}, the number of groups"
            raise bad_value("partition natural", "clients", clients, expectation)
        names = np.sort(random.choice(names, clients, replace=False))
    order = np.argsort(groups, kind="stable")
    ends = np.searchsorted(groups[order], names, side="right")
    starts = np.searchsorted(groups[order], names, side="left")
    return [order[first:last] for first, last in zip(starts, ends, strict=True)]


def _hold_out(
    client: int, indices: Indices, labels: NDArray[Any], spec: PartitionSpec, random: RandomState
) -> tuple[Indices, Indices]:
    """A client's training and test samples, both in the order of `indices`."""
    if len(indices) < 2:
        raise UserError(
            f"partition {spec.name}: client {client} has {len(indices)} sample: expected at least "
            "2, to hold one out: lower `clients` or raise `minimum`"
        )
    wanted = min(max(round(spec.test_fraction * len(indices)), 1), len(indices) - 1)
    own = labels[indices] if spec.stratified else np.zeros(len(indices), dtype=np.int64)
    chosen = stratified_choice(own, wanted, random)
    return indices[~chosen], indices[chosen]


def _hold_out_of_group(
    client: int, indices: Indices, labels: NDArray[Any], spec: Natural, seed: int
) -> tuple[Indices, Indices]:
    """A group's training and test samples, as scikit-learn's `train_test_split` with this seed.

    AAggFF's released code takes them so, each client from a stream that starts anew, and with a
    handful of small clients the results depend on the split more than on the method.

    Raises:
        UserError: when a class has one sample. Other schemes deal out single samples too, at
            random; here it is how the data are.
    """
    own = labels[indices]
    values, counts = np.unique(own, return_counts=True)
    if counts.min() == 1:
        raise UserError(
            f"partition {spec.name}: client {client} has a single sample of class "
            f"{values[counts.argmin()]}, which can't be both trained on and tested with: "
            "expected `stratified: false`, or other data"
        )
    random = RandomState(seed)
    wanted = int(np.ceil(spec.test_fraction * len(own)))
    kept = _drawn_mode(counts, len(own) - wanted, random)
    _drawn_mode(counts - kept, wanted, random)  # all that is left, but its draws count
    chosen = np.ones(len(own), dtype=np.bool_)
    for value, count in zip(values, kept, strict=True):
        chosen[random.permutation(np.flatnonzero(own == value))[:count]] = False
    return indices[~chosen], indices[chosen]


def _drawn_mode(counts: Indices, wanted: int, random: RandomState) -> Indices:
    """`wanted` in proportion to `counts` by largest remainders, ties by lot (scikit-learn's)."""
    exact = counts / counts.sum() * wanted
    quota = np.floor(exact)
    remainder, lacking = exact - quota, int(wanted - quota.sum())
    for value in np.unique(remainder)[::-1]:
        if lacking == 0:
            break
        (ties,) = np.where(remainder == value)
        lucky = random.choice(ties, size=min(len(ties), lacking), replace=False)
        quota[lucky] += 1
        lacking -= len(lucky)
    return np.asarray(quota, dtype=np.int64)


def stratified_choice(labels: NDArray[Any], wanted: int, random: RandomState) -> NDArray[np.bool_]:
    """A mask [n] with `wanted` samples, from each class in proportion (largest remainders)."""
    values, counts = np.unique(labels, return_counts=True)
    exact = counts * wanted / len(labels)
    quota = np.floor(exact).astype(np.int64)
    # Ties go to the larger class, then to the smaller label.
    order = np.lexsort((values, -counts, -(exact - quota)))
    quota[order[: wanted - int(quota.sum())]] += 1
    mask = np.zeros(len(labels), dtype=np.bool_)
    for value, count in zip(values, quota, strict=True):
        mask[random.permutation(np.flatnonzero(labels == value))[:count]] = True
    return mask


def _one_dimensional(labels: NDArray[Any]) -> NDArray[Any]:
    """Texts, whose target is at every word, are of one class."""
    return labels if labels.ndim == 1 else np.zeros(len(labels), dtype=np.int64)


def _counts(clients: list[Indices], labels: NDArray[Any], classes: int) -> Indices:
    return np.stack([np.bincount(labels[indices], minlength=classes) for indices in clients])


def _ends(clients: list[Indices]) -> Indices:
    return np.cumsum([len(indices) for indices in clients], dtype=np.int64)
