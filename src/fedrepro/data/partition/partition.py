"""Partitions, the samples that each client holds and holds out: make, save, load and check them."""

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from fedrepro.data.partition.assigning import Indices, Labels, of_server, stratified_choice
from fedrepro.data.partition.schemes import Natural, PartitionSpec
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, bad_value, brief, damaged, listed, refusal
from fedrepro.support.files import plain, sha256_of, write_atomically

__all__ = ["Partition", "PartitionSpec", "make_partition"]

PARTS = ("train", "test", "validation")  # of the samples of clients
PLACE = 4  # parts of a path that say what a partition is: partitions/DATASET/SCHEME/seedS


@dataclass(frozen=True)
class Partition:
    """Each client's samples, as indices into the training split.

    Attributes:
        train: one int64 array for each client.
        test: the same for the test samples that clients hold out, or None.
        server: int64 [n], the server's samples, which no client has, or None.
        train_counts: int64 [clients, classes], the number of samples of each class.
        test_counts: the same for `test`.
        validation, validation_counts: the same for validation samples, which are not in `train`.
        spec: the scheme with all its keys.
        made_with: the code and labels that it follows from (:mod:`fedrepro.provenance.inputs`);
            empty if an older version made it.
    """

    train: list[Indices]
    test: list[Indices] | None
    train_counts: Indices
    test_counts: Indices | None
    spec: dict[str, Any]
    name: str
    seed: int
    server: Indices | None = None
    validation: list[Indices] | None = None
    validation_counts: Indices | None = None
    made_with: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> list[tuple[str, list[Indices], Indices]]:
        """Name, samples and counts of each part that clients have: train, test, validation."""
        every = ((name, getattr(self, name), getattr(self, f"{name}_counts")) for name in PARTS)
        return [part for part in every if part[1] is not None]

    @property
    def samples(self) -> int:
        """The number of different samples that clients or the server have."""
        rows = [each for _, part, _ in self.parts for each in part]
        return len(
            np.unique(np.concatenate([*rows, *([] if self.server is None else [self.server])]))
        )

    def fits(self, labels: NDArray[Any]) -> bool:
        """Return True if the partition was made for samples with these classes."""
        labels = _one_dimensional(labels)
        for _, rows, counts in self.parts:
            if max(int(each.max(initial=0)) for each in rows) >= len(labels):
                return False
            if not np.array_equal(_counts(rows, labels, counts.shape[1]), counts):
                return False
        return True

    def warning(self, class_names: Sequence[str] = ()) -> str | None:
        """A warning, in one line, of samples held more than once and classes not trained on.

        Args:
            class_names: by which classes are called; by default their numbers.
        """
        rows = (rows for _, rows, _ in self.parts)
        held = [np.concatenate(own) for own in zip(*rows, strict=True)]
        places, distinct = sum(map(len, held)), len(np.unique(np.concatenate(held)))
        facts = []
        if places != distinct:
            twice = sum(len(np.unique(rows)) < len(rows) for rows in held)
            leaking = sum(
                bool(np.isin(test, train).any())
                for train, test in zip(self.train, self.test or [], strict=False)
            )
            facts.append(
                f"{distinct:,} samples are assigned {places:,} times; {twice} of {len(held)} "
                f"clients hold a sample twice, {leaking} test on a sample that they train on"
            )
        untrained = np.flatnonzero(self.train_counts.sum(axis=0) == 0)
        if len(untrained):
            names = [
                class_names[at] if len(class_names) > at else str(at) for at in untrained.tolist()
            ]
            classes = self.train_counts.shape[1]
            facts.append(
                f"no client trains on {len(untrained)} of {classes} classes: {listed(names)}"
            )
        return f"warning: partition {self.name}: {'; '.join(facts)}" if facts else None

    def save(self, path: Path) -> None:
        """Write `path` (.npz) and, next to it, each client's class counts (.json).

        Equal partitions give equal bytes. The .json says what it is and has a checksum of both
        files.

        Raises:
            UserError: if a file cannot be written.
        """
        arrays: dict[str, Indices] = {}
        for name, rows, counts in self.parts:
            arrays |= {name: np.concatenate(rows), f"{name}_ends": _ends(rows)}
            arrays[f"{name}_counts"] = counts
        if self.server is not None:
            arrays["server"] = self.server
        histogram = {
            "name": self.name,
            "spec": self.spec,
            "seed": self.seed,
            **({"made_with": dict(self.made_with)} if self.made_with else {}),
            "clients": len(self.train),
            "classes": int(self.train_counts.shape[1]),
            "test": None,
            **{name: counts.tolist() for name, _, counts in self.parts},
        }
        with write_atomically(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for key, array in arrays.items():
                # ZipInfo's default date is constant; np.savez does not guarantee this.
                with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            archive.close()
            # The .npz appears last: if it exists, so does the histogram.
            histogram["files"] = {path.name: sha256_of(temporary)}
            checksummed_json.write(
                path.with_suffix(".json"), histogram, checksummed_json.place(path, PLACE)
            )

    @staticmethod
    def load(path: Path) -> "Partition":
        """Read a partition that `save` wrote to this place.

        Raises:
            UserError: if a file is missing or damaged, or of another partition.
        """
        try:
            what = checksummed_json.place(path, PLACE)
            about = checksummed_json.checked(path.with_suffix(".json"), what)
            if about["files"] != {path.name: sha256_of(path)}:
                raise ValueError("it is not what its .json says")
            parts: dict[str, Any] = {"test": None, "test_counts": None}
            with plain(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                for name in (name for name in PARTS if name in arrays):
                    parts[name] = np.split(arrays[name], arrays[f"{name}_ends"][:-1])
                    parts[f"{name}_counts"] = arrays[f"{name}_counts"]
                parts["server"] = arrays.get("server")
            known = {key: about[key] for key in ("spec", "name", "seed")}
            partition = Partition(**parts, **known, made_with=about.get("made_with", {}))
            partition._refuse_damage()
            return partition
        except FileNotFoundError as error:
            missing, why = error.filename or error, "there is no such partition"
            raise refusal(missing, why, code="missing") from None
        except Exception as error:  # damaged archives raise many kinds of exceptions
            reason = brief(str(error).partition("\n")[0])
            raise damaged(path, f"{reason}: delete it and make it again") from None

    def _refuse_damage(self) -> None:
        """Raise ValueError for an inconsistent partition."""
        for name, rows, counts in self.parts:
            if len(rows) != len(self.train):
                raise ValueError(f"expected as many clients for {name} as for training")
            for array in (*rows, counts):
                if array.dtype != np.int64 or array.min(initial=0) < 0:
                    raise ValueError("expected whole numbers of at least 0")
            if counts.ndim != 2 or any(each.ndim != 1 for each in rows):
                raise ValueError("expected one list of samples for each client")
            if [len(each) for each in rows] != counts.sum(axis=1).tolist():
                raise ValueError("the class counts do not match the samples")


def make_partition(
    labels: NDArray[Any],
    groups: NDArray[Any] | None,
    spec: PartitionSpec,
    seed: int,
    held_out: NDArray[Any] | None = None,
    group_names: Sequence[str] = (),
    made_with: Mapping[str, Any] = MappingProxyType({}),
) -> Partition:
    """Partition samples among clients.

    Args:
        labels: int [n], the class of each sample. Samples with several labels, such as texts
            [n, length], and those with numbers as targets (float) count as one class.
        groups: int [n], each sample's natural client, for the scheme `natural`.
        spec: the scheme, as in an experiment file.
        seed: of numpy's legacy generator, so below 2**32; a seed in ``spec`` replaces it.
        held_out: bool [n], the test samples that the data set marks, for `given_test`.
        group_names: the names of natural clients in the order of their numbers, for errors.
        made_with: a record of the code and labels, kept with the partition.

    Raises:
        UserError: if the scheme cannot be applied to these samples.

    Examples:
        Four classes of ten samples each, in four shards for two clients:

        >>> import numpy as np
        >>> from fedrepro.data.partition.partition import make_partition
        >>> from fedrepro.data.partition.schemes import Shards
        >>> spec = Shards(scheme="shards", clients=2, classes_per_client=2, test_fraction=0.5)
        >>> made = make_partition(np.repeat([0, 1, 2, 3], 10), None, spec, seed=1)
        >>> made.train_counts + made.test_counts
        array([[ 0,  0, 10, 10], [10, 10,  0,  0]])
    """
    seed = seed if spec.seed is None else spec.seed
    if spec.by_class and np.asarray(labels).dtype.kind == "f":
        wanted = "iid or natural, as its samples have numbers as targets, not classes"
        raise bad_value("partition", "scheme", spec.scheme, wanted)
    labels = _one_dimensional(np.asarray(labels))
    if labels.size == 0:
        raise refusal(f"partition {spec.name}", "there are no samples to partition")
    given_test = isinstance(spec, Natural) and spec.given_test
    if given_test and held_out is None:
        raise without_test(spec, "the data set")
    server, clients = _assigned(labels, groups, spec, seed)
    names = [str(number) for number in range(len(clients))]
    if isinstance(spec, Natural) and groups is not None and len(group_names):
        names = [f"{number} ({group_names[groups[own[0]]]})" for number, own in enumerate(clients)]
    test = validation = None
    holding_out = HoldingOut(spec, labels, names)
    if isinstance(spec, Natural) and spec.test_fraction and spec.stratified:
        clients, test = holding_out.of_groups(clients, spec.test_fraction, seed)
    elif spec.test_fraction:
        clients, test = holding_out.a_share(clients, spec.test_fraction, [seed, 1])
    if given_test:
        clients, test = holding_out.marked(clients, np.asarray(held_out, dtype=np.bool_))
    if spec.validation:
        clients, validation = holding_out.a_share(clients, spec.validation, [seed, 3])
    classes = int(labels.max()) + 1
    return Partition(
        train=clients,
        test=test,
        train_counts=_counts(clients, labels, classes),
        test_counts=None if test is None else _counts(test, labels, classes),
        spec=spec.model_dump(),
        name=spec.name,
        seed=seed,
        server=server,
        validation=validation,
        validation_counts=None if validation is None else _counts(validation, labels, classes),
        made_with=made_with,
    )


def _assigned(
    labels: NDArray[Any], groups: NDArray[Any] | None, spec: PartitionSpec, seed: int
) -> tuple[Indices | None, list[Indices]]:
    """The server's samples, if it has any, and each client's."""
    server = of_server(labels, spec.server) if spec.server else None
    rest = np.arange(len(labels))
    rest = rest if server is None else np.setdiff1d(rest, server)
    if spec.clients is not None and spec.clients > len(rest):
        raise spec.refused("clients", f"at most {len(rest)}, the number of samples")
    groups = None if groups is None else np.asarray(groups)[rest]
    with _seeded(spec, seed):
        clients = [rest[rows] for rows in spec.assign(labels[rest], groups, RandomState(seed))]
    _refuse_empty(clients, spec)
    return server, clients


@contextmanager
def _seeded(spec: PartitionSpec, seed: int) -> Iterator[None]:
    """A context in which a scheme of the user's own may draw from global generators."""
    if {type(spec).__module__, type(getattr(spec, "within", spec)).__module__} == {
        Natural.__module__
    }:
        yield
        return
    from fedrepro.support import rng  # which imports PyTorch

    with rng.seeded(seed):
        yield


def _refuse_empty(clients: list[Indices], spec: PartitionSpec) -> None:
    empty = next((number for number, indices in enumerate(clients) if len(indices) == 0), None)
    if empty is not None:
        repair = f": use fewer than {len(clients)} clients" if spec.clients else ""
        raise client_refused(spec, str(empty), f"would get no samples{repair}")


def _one_dimensional(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels [n]; texts, with a label at every word, and numbers as targets count as one class."""
    classes = labels.ndim == 1 and labels.dtype.kind != "f"
    return labels if classes else np.zeros(len(labels), dtype=np.int64)


def _counts(clients: list[Indices], labels: NDArray[Any], classes: int) -> Indices:
    return np.stack([np.bincount(labels[indices], minlength=classes) for indices in clients])


def _ends(clients: list[Indices]) -> Indices:
    return np.cumsum([len(indices) for indices in clients], dtype=np.int64)


Mask = NDArray[np.bool_]
Halves = tuple[list[Indices], list[Indices]]  # what each client keeps, and what it holds out


def held_out(samples: int, share: float) -> int:
    """The number of a client's samples that it holds out: at least one, and not all."""
    return min(max(round(share * samples), 1), samples - 1)


@dataclass(frozen=True)
class HoldingOut:
    """Divides each client's samples, in their order, into those that it keeps and the others.

    Attributes:
        labels: of all samples [n].
        names: of the clients, in errors.
    """

    spec: PartitionSpec
    labels: Labels
    names: Sequence[str]

    def a_share(self, clients: list[Indices], share: float, stream: Sequence[int]) -> Halves:
        """Hold out a share of each client's samples.

        Args:
            stream: the seed of a stream of its own, so that holding out changes neither which
                samples a client has nor what it holds out for another purpose.

        Raises:
            UserError: if a client has a single sample.
        """
        random = RandomState(stream)
        return self._divided(clients, partial(self._share_of, share=share, random=random))

    def of_groups(self, clients: list[Indices], share: float, seed: int) -> Halves:
        """Hold out of groups as scikit-learn's `train_test_split` does with `seed`.

        AAggFF's released code does this, with the same seed for each client. With a handful of
        small clients, results depend more on this split than on the method.

        Raises:
            UserError: if a class of a client has a single sample.
        """
        return self._divided(clients, partial(self._of_group, share=share, seed=seed))

    def marked(self, clients: list[Indices], marks: Mask) -> Halves:
        """Hold out the samples that the data set marks for testing.

        Raises:
            UserError: if it marks none of these clients, or all of one.
        """
        kept, test = self._divided(clients, lambda _, rows: marks[rows])
        if not sum(map(len, test)):
            raise without_test(self.spec, "of these clients, the data set")
        for name, rows in zip(self.names, kept, strict=True):
            if not len(rows):
                why = (
                    f"given_test: True: client {name} has test samples only: expected some of each "
                    "client for training, as LEAF splits them with `-t sample`: or set "
                    "`test_fraction` instead"
                )
                raise refusal(f"partition {self.spec.name}", why, "given_test", True)
        return kept, test

    def _divided(self, clients: list[Indices], choose: Callable[[str, Indices], Mask]) -> Halves:
        """Hold out the samples that ``choose`` chooses of a client, by its name and its samples."""
        masks = [choose(name, rows) for name, rows in zip(self.names, clients, strict=True)]
        pairs = [*zip(clients, masks, strict=True)]
        return [rows[~mask] for rows, mask in pairs], [rows[mask] for rows, mask in pairs]

    def _share_of(self, client: str, indices: Indices, share: float, random: RandomState) -> Mask:
        spec = self.spec
        if len(indices) < 2:
            repair = "lower `clients`"
            if isinstance(spec, Natural):  # as many as the data name, whatever their size
                repair = f"raise `minimum` ({spec.minimum}), which leaves smaller ones out"
            elif hasattr(spec, "minimum"):
                repair += " or raise `minimum`"
            why = f"has {len(indices)} sample: expected at least 2, to hold one out: {repair}"
            raise client_refused(spec, client, why)
        wanted = held_out(len(indices), share)
        own = self.labels[indices] if spec.stratified else np.zeros(len(indices), dtype=np.int64)
        return stratified_choice(own, wanted, random)

    def _of_group(self, client: str, indices: Indices, share: float, seed: int) -> Mask:
        own, random = self.labels[indices], RandomState(seed)
        values, counts = np.unique(own, return_counts=True)
        if counts.min() == 1:
            why = f"has a single sample of class {values[counts.argmin()]}"
            both = "which cannot be used for both training and testing"
            repair = "set `stratified: false`, or use other data"
            raise client_refused(self.spec, client, f"{why}, {both}: {repair}")
        wanted = int(np.ceil(share * len(own)))
        kept = _drawn_mode(counts, len(own) - wanted, random)
        _drawn_mode(counts - kept, wanted, random)  # its result is known, but it advances `random`
        chosen = np.ones(len(own), dtype=np.bool_)
        for value, count in zip(values, kept, strict=True):
            chosen[random.permutation(np.flatnonzero(own == value))[:count]] = False
        return chosen


def without_test(spec: PartitionSpec, where: str) -> UserError:
    """The error for data that mark no samples for testing."""
    wanted = f"False, with a `test_fraction`, as {where} marks no test samples"
    return bad_value(f"partition {spec.name}", "given_test", True, wanted)


def client_refused(spec: PartitionSpec, client: str, why: str) -> UserError:
    """The error for a client whose samples are too few for its partition."""
    return refusal(f"partition {spec.name}", f"client {client} {why}", f"client {client}")


def _drawn_mode(counts: Indices, wanted: int, random: RandomState) -> Indices:
    """Split `wanted` like `counts`, by largest remainders with random ties, as scikit-learn."""
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
