"""What holds for every way of sharing out, and what is refused."""

import hashlib
import itertools
import json
import math
import re
import time
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import RandomState
from pydantic import TypeAdapter

from fedrepro.data.partition import assigning as module
from fedrepro.data.partition.assigning import of_server, stratified_choice
from fedrepro.data.partition.partition import Partition, PartitionSpec, make_partition
from fedrepro.data.partition.schemes import Count, Domains, Scheme
from fedrepro.support.errors import UserError
from support.numbers_in_text import numbers_in
from support.refusals import Fault, refused

ADAPTER: TypeAdapter[PartitionSpec] = TypeAdapter(PartitionSpec)
LABELS = np.repeat(np.arange(10), 60)
GROUPS = np.arange(600) % 7


def spec(scheme: str, **keys: Any) -> PartitionSpec:
    return ADAPTER.validate_python({"scheme": scheme, **keys})


SPECS = [
    spec("iid", clients=20),
    spec("shards", clients=20, classes_per_client=2),
    spec("dirichlet", clients=10, alpha=0.5),
    spec("grouped_dirichlet", clients=23, alpha=1.0),
    spec("labels", clients=20, classes_per_client=3),
    spec("natural"),
    spec("natural", clients=4),
    spec("paired_shards", clients=20),
]


@pytest.mark.parametrize("chosen", SPECS, ids=lambda chosen: chosen.name)
def test_no_sample_twice_and_the_seed_decides(chosen: PartitionSpec) -> None:
    first = make_partition(LABELS, GROUPS, chosen, 1)
    everything = np.concatenate(first.train)
    assert len(np.unique(everything)) == len(everything)
    assert all(indices.dtype == np.int64 for indices in first.train)
    assert first.train_counts.sum() == len(everything)
    same = make_partition(LABELS, GROUPS, chosen, 1)
    assert all(np.array_equal(a, b) for a, b in zip(first.train, same.train, strict=True))
    if chosen.name not in ("natural", "paired_shards-clients20"):
        other = make_partition(LABELS, GROUPS, chosen, 2)
        assert not all(np.array_equal(a, b) for a, b in zip(first.train, other.train, strict=True))


@pytest.mark.parametrize("chosen", [*SPECS[:6], SPECS[7]], ids=lambda chosen: chosen.name)
def test_all_samples_are_used(chosen: PartitionSpec) -> None:
    assert make_partition(LABELS, GROUPS, chosen, 3).train_counts.sum() == len(LABELS)


@pytest.mark.parametrize("clients", [4, 10, 12, 20, 23, 39])
def test_a_group_has_the_samples_of_so_many_clients(clients: int) -> None:
    """Also the last one, which may have fewer than ten clients."""
    chosen = spec("grouped_dirichlet", clients=clients, alpha=50.0)
    held = [len(rows) for rows in make_partition(LABELS, GROUPS, chosen, 2).train]
    for first in range(0, clients, 10):
        group = held[first : first + 10]
        assert abs(sum(group) - len(group) / clients * len(LABELS)) <= clients // 10


def test_global_randomness_is_left_alone() -> None:
    before = np.random.get_state()[1].copy()  # type: ignore[index,union-attr]  # noqa: NPY002
    for chosen in SPECS:
        make_partition(LABELS, GROUPS, chosen, 1)
    after = np.random.get_state()[1]  # type: ignore[index]  # noqa: NPY002
    assert np.array_equal(before, after)


def test_labels_gives_each_client_so_many_classes() -> None:
    counts = make_partition(LABELS, None, SPECS[4], 1).train_counts
    assert ((counts > 0).sum(axis=1) == 3).all()


def test_the_released_dirichlet_partition_hands_samples_out_again() -> None:
    """Item 42: of 60,000 samples some 1,100 are used, and most clients hold one twice."""
    labels = np.repeat(np.arange(10), 6_000)
    chosen = spec("reusing_dirichlet", clients=100, alpha=1.0, test_fraction=0.2)
    made = make_partition(labels, None, chosen, 5)
    assert made.test is not None
    held = [np.concatenate(pair) for pair in zip(made.train, made.test, strict=True)]
    assert 800 < len(np.unique(np.concatenate(held))) < 1_500
    assert 60 < sum(len(np.unique(rows)) < len(rows) for rows in held) < 90
    distinct = len(np.unique(np.concatenate(held)))
    twice = sum(len(np.unique(rows)) < len(rows) for rows in held)
    assert numbers_in(made.warning())[:4] == [distinct, sum(map(len, held)), twice, 100]
    proper = spec("client_dirichlet", clients=100, alpha=1.0, test_fraction=0.2)
    assert make_partition(labels, None, proper, 5).warning() is None
    few = spec("reusing_dirichlet", clients=20, alpha=99.0, test_fraction=0.2)
    with refused(names=("5", "class", "`clients`")):
        make_partition(np.arange(60) % 10, None, few, 1)


class Told(RandomState):
    """Keeps which classes were drawn."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.drawn: list[list[int]] = []

    def choice(self, *arguments: Any, **keys: Any) -> Any:
        self.drawn.append(super().choice(*arguments, **keys).tolist())
        return np.array(self.drawn[-1])


@pytest.mark.parametrize(("share", "least"), [(0.0, 1), (0.2, 5), (0.06, 16)])
def test_the_released_dirichlet_partition_deals_first_samples_of_classes_drawn_often_enough(
    share: float, least: int
) -> None:
    """By hand from what was drawn: more often than ``least``, and as often as a class was drawn."""
    labels = RandomState(0).permutation(np.repeat(np.arange(6), (400, 300, 200, 60, 300, 340)))
    left = [np.flatnonzero(labels == label).tolist() for label in range(6)]
    random = Told(1)
    chosen = spec("reusing_dirichlet", clients=20, alpha=2.0, test_fraction=share)
    dealt = chosen.assign(labels, None, random)
    counts = [Counter(drawn) for drawn in random.drawn]
    assert {least, least + 1} <= {number for each in counts for number in each.values()}
    for rows in dealt:
        hand, wanted = list[int](), 80
        while wanted > 0:
            often = {label: n for label, n in sorted(counts.pop(0).items()) if n > least}
            for label, number in often.items():
                left[label] = left[label][:number]
                hand += left[label]
            wanted -= sum(often.values())
        assert rows.tolist() == hand
    assert len(dealt) == 20 and not counts


def former_labels(labels: Any, clients: int, wanted: int, random: RandomState) -> list[list[int]]:
    """The classes of each client as in FedLab, which gives a class to any number of clients."""
    classes = int(labels.max()) + 1
    held = []
    for client in range(clients):
        own = [client % classes]
        while len(own) < wanted:
            drawn = int(random.randint(classes))
            if drawn not in own:
                own.append(drawn)
        held.append(own)
    return held


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 9), min_size=2, max_size=6),
    clients=st.integers(1, 12),
    wanted=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_labels_gives_so_many_classes_or_says_why_not(
    counts: list[int], clients: int, wanted: int, seed: int
) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    if not len(labels) or clients > len(labels):
        return
    try:
        chosen = spec("labels", clients=clients, classes_per_client=wanted)
        made = make_partition(labels, None, chosen, seed)
    except UserError:
        return  # in words that another test has
    assert ((made.train_counts > 0).sum(axis=1) == wanted).all()
    before = former_labels(labels, clients, wanted, RandomState(seed))
    holders = np.bincount(np.concatenate(before), minlength=len(counts))
    if (holders[: len(counts)] <= counts).all():  # nobody went without: as it was
        assert [set(np.flatnonzero(row)) for row in made.train_counts] == [*map(set, before)]


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=8),
    clients=st.integers(1, 9),
    wanted=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_shards_leave_over_the_same_share_of_each_class(
    counts: list[int], clients: int, wanted: int, seed: int
) -> None:
    labels = RandomState(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    if clients * wanted > len(labels):
        return
    made = make_partition(
        labels, None, spec("shards", clients=clients, classes_per_client=wanted), seed
    )
    size, left = divmod(len(labels), clients * wanted)
    assert (made.train_counts.sum(axis=1) == size * wanted).all()
    lost = np.array(counts) - made.train_counts.sum(axis=0)
    assert lost.sum() == left
    assert (np.abs(lost - np.array(counts) * left / len(labels)) < 1).all()
    assert made.samples == len(labels) - left
    if not left:  # FedLab's
        order = np.argsort(labels, kind="stable")
        hands = RandomState(seed).permutation(clients * wanted).reshape(clients, wanted)
        by_hand = [np.concatenate([order[s * size : (s + 1) * size] for s in h]) for h in hands]
        assert all(np.array_equal(a, b) for a, b in zip(made.train, by_hand, strict=True))


def test_classes_that_nobody_trains_on_are_named() -> None:
    made = make_partition(LABELS, None, spec("labels", clients=3, classes_per_client=2), 1)
    missing = np.flatnonzero(made.train_counts.sum(axis=0) == 0)
    assert len(missing) > 3
    words = [f"class {at}" for at in range(10)]
    assert numbers_in(made.warning()) == [len(missing), 10, *missing]
    assert str(made.warning(words)).endswith(": " + ", ".join(words[at] for at in missing))


def test_paired_shards_are_superfeds() -> None:
    labels = RandomState(0).permutation(LABELS)
    # 600 samples in 40 shards of 15, four to a class: client i holds shards i and i + 20.
    made = make_partition(labels, None, SPECS[7], 1)
    assert (made.train_counts.sum(axis=1) == 30).all()
    held = [np.flatnonzero(counts).tolist() for counts in made.train_counts]
    assert held == [[i // 4, 5 + i // 4] for i in range(20)]
    zeros = np.flatnonzero(labels == 0)
    assert made.train[1][:15].tolist() == zeros[15:30].tolist()
    # A client holds the same with any seed, but holds out other samples; K need not divide them.
    chosen = spec("paired_shards", clients=7, test_fraction=0.2)
    first, second = (make_partition(labels, None, chosen, seed) for seed in (1, 2))
    for one, two in zip(first.train, second.train, strict=True):
        assert not np.array_equal(one, two)
    assert np.array_equal(_held(first), _held(second))
    assert {
        len(each)
        for each in make_partition(labels, None, spec("paired_shards", clients=7), 1).train
    } == {85, 86}


def _held(made: Partition) -> np.ndarray:
    """int [clients, classes], training and test samples together."""
    assert made.test_counts is not None
    return made.train_counts + made.test_counts


def test_a_client_with_one_class_or_two_samples_holds_out_one(tmp_path: Path) -> None:
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 2, 0])
    groups = np.array([0, 0, 0, 0, 0, 1, 1, 2, 2])
    for stratified in (False, True):
        chosen = spec("natural", clients=2, minimum=2, test_fraction=0.01, stratified=stratified)
        made = make_partition(labels[:7], groups[:7], chosen, 1)
        assert made.test is not None
        sizes = [(len(a), len(b)) for a, b in zip(made.train, made.test, strict=True)]
        assert sizes == [(4, 1), (1, 1)]
        made.save(tmp_path / "seed1.npz")
        assert Partition.load(tmp_path / "seed1.npz").fits(labels[:7])
    # Each class of the third client has a single sample.
    loose = spec("natural", test_fraction=0.9)
    made = make_partition(labels, groups, loose, 1)
    assert [len(each) for each in made.train] == [1, 1, 1]


def test_a_client_of_whom_nothing_is_marked_for_testing(tmp_path: Path) -> None:
    groups, marked = np.array([0, 0, 1, 1]), np.array([False, True, False, False])
    chosen = spec("natural", given_test=True)
    made = make_partition(np.array([0, 1, 1, 0]), groups, chosen, 1, marked)
    made.save(tmp_path / "seed1.npz")
    loaded = Partition.load(tmp_path / "seed1.npz")
    assert loaded.test is not None
    assert loaded.test_counts is not None
    assert [each.tolist() for each in loaded.test] == [[1], []]
    assert loaded.test_counts.tolist() == [[0, 1], [0, 0]]
    assert loaded.fits(np.array([0, 1, 1, 0]))
    validated = spec("natural", given_test=True, minimum=2, validation=0.5)  # of what is left
    both = make_partition(np.zeros(6, int), np.repeat([0, 1], 3), validated, 1, np.arange(6) < 1)
    assert both.test is not None and both.validation is not None
    sizes = [[len(each) for each in part] for part in (both.train, both.validation, both.test)]
    assert sizes == [[1, 1], [1, 2], [1, 0]]
    # Nor can one be trained on whose samples are all marked.
    with refused(names=("0", "samples")):
        make_partition(np.array([0, 1, 1, 0]), groups, chosen, 1, groups == 0)
    with refused("value", key="given_test", value=True):  # it was scored on none
        make_partition(np.array([0, 1, 1, 0]), groups, chosen, 1, groups == 2)


def test_a_hopeless_minimum_is_given_up_soon() -> None:
    """10,000 clients took minutes to be refused; whatever can succeed still may."""
    labels = np.repeat(np.arange(10), 6000)
    started = time.process_time()
    with refused(names=("100", "10000", "`minimum`")):
        make_partition(labels, None, spec("dirichlet", clients=10_000, alpha=0.5, minimum=3), 1)
    assert time.process_time() - started < 15


def test_a_draw_that_comes_close_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one after many that are void."""
    far, close = np.zeros(200, np.int64) + 5, np.zeros(200, np.int64) + 10
    far[:60], close[:3] = 1, 9
    void, good = np.zeros(200, np.int64), np.full(200, 10)
    cuts = [(np.arange(2000), np.arange(10, 2000, 10))]
    for draws in ([*[far] * 99, close, *[far] * 500, good], [*[void] * 500, good]):
        given = iter(draws)

        def draw(*_: object, given: Any = given, **__: object) -> tuple[Any, Any]:
            return cuts, next(given)

        monkeypatch.setattr(module, "_dirichlet_draw", draw)
        assert len(module.dirichlet(np.zeros(2000, int), 200, 1.0, 10, RandomState(0))) == 200
        assert next(given, None) is None


def test_dirichlet_keeps_its_minimum() -> None:
    chosen = spec("dirichlet", clients=10, alpha=0.3, minimum=25)
    assert make_partition(LABELS, None, chosen, 1).train_counts.sum(axis=1).min() >= 25


def test_natural_clients_are_the_groups() -> None:
    clients = make_partition(LABELS, GROUPS, spec("natural"), 1).train
    assert [np.unique(GROUPS[indices]).tolist() for indices in clients] == [[g] for g in range(7)]


@pytest.mark.parametrize("stratified", [False, True])
def test_each_client_holds_out_its_own(stratified: bool) -> None:
    plain = make_partition(LABELS, None, spec("iid", clients=6), 5)
    chosen = spec("iid", clients=6, test_fraction=0.2, stratified=stratified)
    split = make_partition(LABELS, None, chosen, 5)
    assert split.test is not None
    assert split.test_counts is not None
    for whole, train, test in zip(plain.train, split.train, split.test, strict=True):
        assert len(test) == 20
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.sort(whole))
    if stratified:
        exact = plain.train_counts * 0.2
        assert (np.abs(split.test_counts - exact) < 1).all()


@pytest.mark.parametrize(
    "keys",
    [
        {"scheme": "iid", "clients": 6, "test_fraction": 0.2},
        {"scheme": "iid", "clients": 6, "test_fraction": 0.2, "stratified": True},
        {"scheme": "natural", "test_fraction": 0.2, "stratified": True},
        {"scheme": "shards", "clients": 12, "classes_per_client": 2},
        {"scheme": "shards", "clients": 12, "classes_per_client": 2, "stratified": True},
    ],
    ids=lambda keys: "-".join(map(str, keys.values())),
)
def test_validation_samples_come_out_of_the_training_part(keys: dict[str, Any]) -> None:
    """Disjoint from both other parts, of which testing stays as it is without."""
    plain = make_partition(LABELS, GROUPS, spec(**keys), 5)
    made = make_partition(LABELS, GROUPS, spec(**keys, validation=0.25), 5)
    assert plain.validation is None and plain.validation_counts is None
    assert made.validation is not None and made.validation_counts is not None
    assert made.name == f"{made.name.removesuffix('-validation0.25')}-validation0.25"
    for before, after, kept in zip(plain.train, made.train, made.validation, strict=True):
        assert len(kept) == round(0.25 * len(before))
        assert np.array_equal(np.sort(np.concatenate([after, kept])), np.sort(before))
        assert np.array_equal(after, before[np.isin(before, after)])  # in its order
    if plain.test is not None and made.test is not None:
        assert all(np.array_equal(a, b) for a, b in zip(plain.test, made.test, strict=True))
    if keys.get("stratified"):
        assert (np.abs(made.validation_counts - 0.25 * plain.train_counts) < 1).all()
    again = make_partition(LABELS, GROUPS, spec(**keys, validation=0.25), 5).validation
    assert again and all(np.array_equal(a, b) for a, b in zip(made.validation, again, strict=True))
    other = make_partition(LABELS, GROUPS, spec(**keys, validation=0.25), 6).validation
    assert other and not all(map(np.array_equal, made.validation, other))


def test_each_draw_of_a_partition_has_its_own_stream() -> None:
    """The same clients hold out the same numbers of samples, to test on and to validate on."""
    tested = make_partition(LABELS, None, spec("iid", clients=6, test_fraction=0.25), 5)
    validated = make_partition(LABELS, None, spec("iid", clients=6, validation=0.25), 5)
    assert tested.test and validated.validation
    for one, other in zip(tested.test, validated.validation, strict=True):
        assert len(one) == len(other) and not np.array_equal(np.sort(one), np.sort(other))


def test_validation_samples_are_kept_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "seed1.npz"
    made = make_partition(LABELS, None, spec("iid", clients=6, validation=0.1), 1)
    made.save(path)
    loaded = Partition.load(path)
    assert made.validation and loaded.validation and loaded.validation_counts is not None
    assert all(map(np.array_equal, made.validation, loaded.validation))
    assert loaded.validation_counts.sum() == 60
    assert loaded.fits(LABELS) and loaded.warning() is None
    wrong = LABELS.copy()
    wrong[made.validation[2][0]] = 9 - wrong[made.validation[2][0]]
    assert not loaded.fits(wrong)
    histogram = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert histogram["validation"] == loaded.validation_counts.tolist()


def test_a_client_that_has_one_sample_cannot_validate() -> None:
    with refused("value", key="client 0", names=("1", "`clients`")):
        make_partition(LABELS[:3], None, spec("iid", clients=3, validation=0.1), 1)


@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(lambda c: sum(c) > 1),
    data=st.data(),
)
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_stratified_choice_is_proportional(counts: list[int], data: st.DataObject) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    wanted = data.draw(st.integers(0, len(labels)))
    mask = stratified_choice(labels, wanted, RandomState(0))
    assert mask.sum() == wanted
    chosen = np.bincount(labels[mask], minlength=len(counts))
    assert (np.abs(chosen - np.array(counts) * wanted / len(labels)) < 1).all()
    # What is left over goes to the largest remainders; of equal ones to larger classes, then to
    # smaller labels.
    exact = [count * wanted / len(labels) for count in counts]
    quotas = [math.floor(each) for each in exact]
    order = sorted(
        range(len(counts)),
        key=lambda label: (quotas[label] - exact[label], -counts[label], label),
    )
    for label in order[: wanted - sum(quotas)]:
        quotas[label] += 1
    assert chosen.tolist() == quotas


PLACED = "partitions/d/shards"  # what a partition is is its place


def test_saved_files_are_equal_bytes_and_load_again(tmp_path: Path) -> None:
    chosen = spec("shards", clients=10, classes_per_client=2, test_fraction=0.25)
    made = make_partition(LABELS, None, chosen, 1)
    for name in ("a", "b"):
        made.save(tmp_path / name / PLACED / "seed1.npz")
    for suffix in (".npz", ".json"):
        a, b = ((tmp_path / name / PLACED / f"seed1{suffix}").read_bytes() for name in ("a", "b"))
        assert hashlib.sha256(a).digest() == hashlib.sha256(b).digest()
    loaded = Partition.load(tmp_path / "a" / PLACED / "seed1.npz")
    assert (loaded.name, loaded.seed, loaded.spec) == (made.name, made.seed, made.spec)
    assert loaded.test is not None
    assert made.test is not None
    for ours, theirs in ((made.train, loaded.train), (made.test, loaded.test)):
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert np.array_equal(loaded.train_counts, made.train_counts)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "seed1.npz"
    make_partition(LABELS, None, SPECS[0], 1).save(path)
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"not a zip file"):
        path.write_bytes(damaged)
        with refused("damaged", file="seed1.npz", names="damaged"):
            Partition.load(path)
    flipped = bytearray(content)
    flipped[len(content) // 3] ^= 1
    path.write_bytes(flipped)
    with refused("damaged", names="damaged"):
        Partition.load(path)
    path.unlink()
    with refused("missing"):
        Partition.load(path)


def test_a_partition_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    """Whoever wrote it, with checksums that are right."""
    keys = {"test_fraction": 0.25, "validation": 0.25}
    made = make_partition(LABELS[::20], None, spec("iid", clients=3, **keys), 1)
    first, *others = made.train
    assert made.test is not None and made.validation is not None
    moved = made.train_counts.copy()  # from one client to another: their sum is right
    one = np.eye(10, dtype=int)[moved[1].argmax()]
    moved[0], moved[1] = moved[0] + one, moved[1] - one
    wrong: dict[str, Any] = {
        "train": [[each.astype(np.int32) for each in made.train], [-1 - first, *others]],
        "train_counts": [made.train_counts.astype(np.int32), moved],
        "test": [made.test[:2], [*made.test, made.test[0]]],
        "validation": [made.validation[:2]],
        "validation_counts": [made.validation_counts[:, :1]],
    }
    path = tmp_path / "seed1.npz"
    made.save(path)
    assert Partition.load(path).fits(LABELS[::20])
    for key, values in wrong.items():
        for value in values:
            replace(made, **{key: value}).save(path)
            with refused("damaged", file="seed1.npz"):
                Partition.load(path)


def test_nothing_in_the_file_is_pickled(tmp_path: Path) -> None:
    make_partition(LABELS, None, SPECS[0], 1).save(tmp_path / "seed1.npz")
    with zipfile.ZipFile(tmp_path / "seed1.npz") as file:
        for name in file.namelist():
            assert b"'descr': '<i8'" in file.read(name)[:128]


def test_what_deals_otherwise_has_another_name() -> None:
    dealt: dict[str, Partition] = {}
    for test, validation, stratified, server, seed in itertools.product(
        (0.0, 0.2), (0.0, 0.25), (False, True), (0.0, 0.5), (None, 0)
    ):
        keys = {"test_fraction": test, "validation": validation, "stratified": stratified}
        chosen = spec("dirichlet", clients=4, alpha=5.0, server=server, seed=seed, **keys)
        made = make_partition(LABELS, None, chosen, 1)
        known = dealt.setdefault(chosen.name, made)
        for kind in ("train", "test", "validation"):
            one, other = getattr(known, kind) or (), getattr(made, kind) or ()
            assert all(map(np.array_equal, one, other)) and len(one) == len(other), keys
    assert len(dealt) == 28  # who holds nothing out is not stratified
    assert [made.seed for made in dealt.values()] == [1, 0] * 14
    for key in ("test_fraction", "validation", "server"):
        names = {spec("iid", clients=4, **{key: 0.2 + more}).name for more in (0, 1e-9, 1e-7)}
        assert len(names) == 3, key


def test_names_are_path_safe_and_tell_schemes_apart() -> None:
    more = [
        spec("dirichlet", clients=10, alpha=0.5, minimum=1),
        spec("iid", clients=20, test_fraction=0.2),
        spec("iid", clients=20, test_fraction=0.2, stratified=True),
    ]
    names = [chosen.name for chosen in [*SPECS, *more]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_.-]+", name) for name in names)
    assert SPECS[1].name == "shards-clients20-classes2"


@pytest.mark.parametrize(
    ("chosen", "fault"),
    [
        (spec("iid", clients=601), Fault(key="clients", value=601, names="600")),
        (
            spec("shards", clients=301, classes_per_client=2),
            Fault(key="classes_per_client", value=2, names=("1", "602", "600")),
        ),
        (
            spec("labels", clients=5, classes_per_client=11),
            Fault(key="classes_per_client", value=11, names="10"),
        ),
        (
            spec("labels", clients=61, classes_per_client=10),
            Fault(key="classes_per_client", value=10, names="60"),
        ),
        (spec("paired_shards", clients=301), Fault(key="clients", value=301, names="300")),
        (spec("dirichlet", clients=100, alpha=1.0), Fault(key="minimum", value=10, names="6")),
        (spec("natural", clients=8), Fault(key="clients", value=8, names="7")),
        (
            spec("iid", clients=600, test_fraction=0.5),
            Fault(key="client 0", names=("1", "2", "`clients`")),
        ),
        (
            spec("dirichlet", clients=100, alpha=1.0, minimum=1, test_fraction=0.5),
            Fault(names=("1", "2", "`clients`", "`minimum`")),
        ),
    ],
)
def test_what_cannot_be_met_is_one_line(chosen: PartitionSpec, fault: Fault) -> None:
    with refused("value", **fault) as raised:
        make_partition(LABELS, GROUPS, chosen, 1)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "chosen",
    [
        spec("iid", clients=600),
        spec("shards", clients=300, classes_per_client=2),
        spec("paired_shards", clients=300),
        spec("labels", clients=60, classes_per_client=10),
        spec("dirichlet", clients=1, alpha=1.0, minimum=600),
        spec("natural", clients=7),
        spec("natural", minimum=86),
    ],
    ids=lambda chosen: chosen.name,
)
def test_what_can_just_be_met_is_met(chosen: PartitionSpec) -> None:
    """Of 600 samples in 10 classes and in 7 groups, of which 5 have 86."""
    made = make_partition(LABELS, GROUPS, chosen, 1)
    assert len(made.train) == (chosen.clients or 5)
    assert made.samples == (430 if chosen.clients is None else 600)


@pytest.mark.parametrize(
    ("chosen", "fault"),
    [
        # 300 are left beside the server's, and 9 classes without the fifth.
        (spec("iid", clients=301, server=0.5), {"key": "clients", "value": 301, "names": "300"}),
        (
            spec("labels", clients=2, classes_per_client=10),
            {"key": "classes_per_client", "value": 10, "names": "9"},
        ),
    ],
)
def test_what_is_missing_does_not_count(chosen: PartitionSpec, fault: Fault) -> None:
    with refused(**fault):
        make_partition(LABELS if chosen.server else LABELS[LABELS != 4], None, chosen, 1)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_numbers_as_targets_are_dealt_out_as_one_class(kind: str) -> None:
    targets = np.linspace(-1, 3, 600).astype(kind)
    for chosen in (spec("iid", clients=7, test_fraction=0.2), spec("natural", stratified=True)):
        made = make_partition(targets, GROUPS, chosen, 1)
        assert made.train_counts.shape == (7, 1) and made.fits(targets)
    by_group = {"scheme": "iid", "clients": 2}
    assert len(make_partition(targets, GROUPS, spec("domains", within=by_group), 1).train) == 14
    by_class = spec("domains", within={"scheme": "labels", "clients": 2, "classes_per_client": 1})
    for chosen in (SPECS[1], by_class):
        with refused(key="scheme", value=chosen.scheme, names=("iid", "natural")):
            make_partition(targets, GROUPS, chosen, 1)


def test_a_natural_client_is_named() -> None:
    groups, names = np.array([2, 0, 0, 2, 1, 1, 1]), ["north", "south", "west"]
    labels = np.array([0, 0, 0, 0, 0, 1, 0])
    for number, keys in ((1, {"stratified": True}), (0, {"minimum": 3, "stratified": True})):
        chosen = spec("natural", test_fraction=0.4, **keys)
        with refused("value", key=f"client {number} (south)", names="`stratified: false`"):
            make_partition(labels, groups, chosen, 1, group_names=names)
    with refused("value", key="client 2 (west)", names=("1", "2", "`minimum` (1)")):
        make_partition(np.zeros(6), groups[1:], spec("natural", validation=0.5), 1, None, names)
    enough = spec("natural", validation=0.5, minimum=2)
    assert len(make_partition(np.zeros(6, int), groups[1:], enough, 1).train) == 2


def test_no_groups_and_no_samples() -> None:
    with refused("value", key="scheme", value="natural", names=("`group`", "`layout`")):
        make_partition(LABELS, None, spec("natural"), 1)
    with refused(names=("partition", "samples")):
        make_partition(LABELS[:0], None, SPECS[0], 1)


def test_a_draw_that_does_not_end_names_the_two_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIRICHLET_TRIES", 50)
    labels = np.repeat(np.arange(10), 200)
    with refused("value", key="minimum", names=("`minimum`", "`grouped_dirichlet`")):
        make_partition(labels, None, spec("dirichlet", clients=100, alpha=0.05), 1)
    monkeypatch.undo()
    way_out = spec("grouped_dirichlet", clients=100, alpha=0.05)
    assert len(make_partition(labels, None, way_out, 1).train) == 100


def test_alphas_too_small_for_floats_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIRICHLET_TRIES", 5)
    with refused("value", file="partition: dirichlet", key="minimum"):
        make_partition(LABELS, None, spec("dirichlet", clients=10, alpha=1e-320), 1)


@pytest.mark.parametrize(
    ("scheme", "keys"),
    [
        ("iid", {"clients": 0}),
        ("iid", {"clients": True}),
        ("iid", {"clients": 5, "test_fraction": 1.0}),
        ("iid", {"clients": 5, "alpha": 1.0}),
        ("dirichlet", {"clients": 5, "alpha": 0.0}),
        ("dirichlet", {"clients": 5, "alpha": float("inf")}),
        ("dirichlet", {"clients": 5, "alpha": 1.0, "minimum": 0}),
        ("shards", {"clients": 5}),
        ("natural", {"given_test": True, "test_fraction": 0.2}),
    ],
)
def test_wrong_schemes_are_refused(scheme: str, keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        spec(scheme, **keys)


@pytest.mark.parametrize("chosen", [*SPECS[:2], SPECS[2], SPECS[5]], ids=lambda each: each.name)
def test_the_servers_share_is_the_same_for_all_schemes_and_seeds(chosen: PartitionSpec) -> None:
    shared = chosen.model_copy(update={"server": 0.5})
    assert shared.name == f"{chosen.name}-server0.5"
    made = [make_partition(LABELS, GROUPS, shared, seed) for seed in (1, 2)]
    alone = make_partition(LABELS, GROUPS, spec("at_server", share=0.5), 7)
    for each in made:
        assert each.server is not None
        assert np.array_equal(each.server, alone.train[0])
        assert np.bincount(LABELS[each.server]).tolist() == [30] * 10
        assert not np.isin(np.concatenate(each.train), each.server).any()
        assert each.fits(LABELS)
    assert alone.name == "at_server-share0.5" and len(alone.train) == 1
    # What was trained on these samples elsewhere is given to others: always the same ones.
    first = np.sort(RandomState([0, 2]).permutation(60)[:30])
    assert np.array_equal(alone.train[0][:30], first)


def test_the_servers_share_is_saved_and_leaves_what_was_there_as_it_was(tmp_path: Path) -> None:
    with_it = make_partition(LABELS, None, spec("iid", clients=5, server=0.1), 1)
    with_it.save(tmp_path / "with.npz")
    again = Partition.load(tmp_path / "with.npz").server
    assert again is not None and np.array_equal(again, with_it.server)
    without = make_partition(LABELS, None, spec("iid", clients=5), 1)
    assert without.server is None and "server" not in without.spec


def test_a_share_of_the_server_at_the_server_is_refused() -> None:
    with pytest.raises(ValueError, match="`share` instead of `server`"):
        spec("at_server", share=0.5, server=0.5)


@pytest.mark.parametrize("share", [0.25, 0.1])
def test_a_smaller_share_of_the_server_is_a_part_of_a_larger_one(share: float) -> None:
    """FedGO's Figure 10 cuts the server's samples so; each class shrinks alike."""
    labels = RandomState(5).permutation(np.repeat(np.arange(10), 300))
    less, all_of_it = of_server(labels, share), of_server(labels, 0.5)
    assert set(less) < set(all_of_it)
    assert np.bincount(labels[less]).tolist() == [round(300 * share)] * 10


@pytest.mark.parametrize("within", [False, True])
def test_the_seed_decides_what_an_own_scheme_draws_from_global_generators(within: bool) -> None:
    class Careless(Scheme):
        scheme: Literal["careless"] = "careless"
        clients: Count = 2

        def assign(self, labels: Any, groups: Any, random: Any) -> Any:
            of_numpy = np.random.permutation(len(labels))  # noqa: NPY002
            return np.array_split(of_numpy[torch.randperm(len(labels)).numpy()], 2)

    labels, groups = np.zeros(40, int), np.arange(40) // 20
    spec = Domains.model_construct(scheme="domains", within=Careless()) if within else Careless()
    before = np.random.get_state()[2], torch.get_rng_state()  # noqa: NPY002
    one, again, other = (make_partition(labels, groups, spec, seed) for seed in (1, 1, 2))
    assert all(map(np.array_equal, one.train, again.train))
    assert not all(map(np.array_equal, one.train, other.train))
    assert np.random.get_state()[2] == before[0]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[1])
