"""Functions that partition samples among clients, each named after its scheme.

They are pure except for the given random state. They draw from it in the order of the code behind
the published results, so that a seed gives the same clients: numpy's legacy generator
(`np.random.RandomState(seed)`, the stream of `np.random.seed(seed)`), FedLab's functions as copied
by FedIMA, and FedDF's grouped partitioner.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from fedrepro.support.errors import bad_value, refusal

Indices = NDArray[np.int64]
Labels = NDArray[Any]  # whole numbers [n]

DIRICHLET_TRIES = 2_000
# After so many draws, each of which left so many clients too small, there is no hope: nearly
# independent clients would all have to be large enough at once, which has a chance of exp(-50).
HOPELESS_DRAWS, HOPELESS_CLIENTS = 100, 50
GROUP_SIZE = 10  # n_auxi_workers in FedDF's code


def _by_class(labels: Labels) -> list[Indices]:
    """The samples of each class, from 0 to the largest."""
    return [np.flatnonzero(labels == label) for label in range(int(labels.max()) + 1)]


def iid(labels: Labels, clients: int, random: RandomState) -> list[Indices]:
    """Split a random permutation into parts whose sizes differ by at most one."""
    order = random.permutation(len(labels))
    return [part.astype(np.int64) for part in np.array_split(order, clients)]


def shards(
    labels: Labels, clients: int, classes_per_client: int, random: RandomState
) -> list[Indices]:
    """FedLab's shards: samples sorted by class, in equal shards; left-over samples are not used.

    The sort is stable. The released code's is not, so its indices depend on the numpy build (B9).
    Its left-over samples are the last ones, so that whole classes may be lost; here they are the
    same share of each class.
    """
    order = np.argsort(labels, kind="stable").astype(np.int64)
    size, left = divmod(len(labels), clients * classes_per_client)
    if left:
        order = order[~stratified_choice(labels, left, random)[order]]
    assigned = random.permutation(clients * classes_per_client).reshape(clients, classes_per_client)
    return [np.concatenate([order[s * size : (s + 1) * size] for s in hand]) for hand in assigned]


def paired_shards(labels: Labels, clients: int) -> list[Indices]:
    """SuPerFed's pathological split: of 2K shards sorted by class client i holds i and i + K."""
    order = np.argsort(labels, kind="stable").astype(np.int64)
    cut = np.array_split(order, 2 * clients)
    return [np.concatenate(pair) for pair in zip(cut[:clients], cut[clients:], strict=True)]


def dirichlet(
    labels: Labels, clients: int, alpha: float, minimum: int, random: RandomState
) -> list[Indices]:
    """FedLab's `hetero_dir_partition`: Dirichlet shares with a cap of N/K and a smallest client.

    Raises:
        UserError: if none of `DIRICHLET_TRIES` draws gives every client `minimum` samples, or if
            the first ones show that none will.
    """
    members = _by_class(labels)
    drawn, close = 0, False
    for tried in range(1, DIRICHLET_TRIES + 1):  # noqa: B007 - told below
        cut, sizes = _dirichlet_draw(members, clients, alpha, random, shuffle=True)
        if sizes.min() >= minimum:
            joined = _pieces_of(cut, clients)
            for indices in joined:
                random.shuffle(indices)
            return joined
        if sizes.any():  # not void
            drawn += 1
            close = close or bool(np.count_nonzero(sizes < minimum) < HOPELESS_CLIENTS)
        if drawn >= HOPELESS_DRAWS and not close:
            break
    why = (
        f"none of {tried} draws gave each of {clients} clients at least {minimum} samples at "
        f"alpha {alpha:g}: lower `minimum`, or use the scheme `grouped_dirichlet`"
    )
    raise refusal("partition: dirichlet", why, "minimum", minimum)


def _dirichlet_draw(
    members: list[Indices], clients: int, alpha: float, random: RandomState, *, shuffle: bool
) -> tuple[list[tuple[Indices, Indices]], Indices]:
    """One draw: each class's samples and where they are cut, and the clients' sizes.

    All sizes are 0 if the draw is void.
    """
    cut: list[tuple[Indices, Indices]] = []
    sizes = np.zeros(clients, dtype=np.int64)
    most = sum(map(len, members)) / clients
    for member in members:
        if shuffle:
            member = member.copy()
            random.shuffle(member)
        shares = random.dirichlet(np.full(clients, alpha)) * (sizes < most)
        total = shares.sum()
        if not total > 0:  # all clients with a share are full, or alpha is so small that 0/0
            return cut, np.zeros(clients, dtype=np.int64)
        cuts = (np.cumsum(shares / total) * len(member)).astype(np.int64)[:-1]
        cut.append((member, cuts))
        sizes += np.diff(cuts, prepend=0, append=len(member))
    return cut, sizes


def _pieces_of(cut: list[tuple[Indices, Indices]], clients: int) -> list[Indices]:
    """Each client's samples of a draw, class after class."""
    classes = [np.split(member, cuts) for member, cuts in cut]
    return [
        np.concatenate([pieces[client] for pieces in classes]).astype(np.int64)
        for client in range(clients)
    ]


def grouped_dirichlet(
    labels: Labels, clients: int, alpha: float, random: RandomState
) -> list[Indices]:
    """FedDF's partitioner: shuffled data in consecutive parts, one for each group of ten clients.

    Raises:
        UserError: if no draw gives each client of a group half of the mean.
    """
    order = np.arange(len(labels), dtype=np.int64)
    random.shuffle(order)
    classes = int(labels.max()) + 1
    groups = -(-clients // GROUP_SIZE)
    # All parts but the last have the same size, even if the last group has fewer clients.
    part = int(min(GROUP_SIZE, clients) / clients * len(labels))
    result = []
    for group in range(groups):
        last = group == groups - 1
        indices = order[group * part : None if last else (group + 1) * part]
        members = [indices[labels[indices] == label] for label in range(classes)]
        size = clients - group * GROUP_SIZE if last else GROUP_SIZE
        result += _one_group(members, size, alpha, random)
    return result


def _one_group(
    members: list[Indices], clients: int, alpha: float, random: RandomState
) -> list[Indices]:
    least = int(0.5 * sum(map(len, members)) / clients)
    for _ in range(DIRICHLET_TRIES):
        cut, sizes = _dirichlet_draw(members, clients, alpha, random, shuffle=False)
        if sizes.sum() and sizes.min() >= least:
            return _pieces_of(cut, clients)
    why = (
        f"{DIRICHLET_TRIES} draws at alpha {alpha:g} left a client with less than half of the "
        "mean: raise `alpha` or lower `clients`"
    )
    raise refusal("partition: grouped_dirichlet", why, "alpha", alpha)


def labels(
    labels: Labels, clients: int, classes_per_client: int, random: RandomState
) -> list[Indices]:
    """NIID-Bench's `#label=k` as in FedLab: client i holds class i mod C and k-1 random ones.

    A class is split equally among the clients that hold it; classes that no client holds are not
    used. A class with as many holders as samples is given to no more clients, which would get
    none of it.

    Raises:
        UserError: if a client cannot get as many classes.
    """
    classes = int(labels.max()) + 1
    room = np.bincount(labels, minlength=classes)  # for more holders
    held: list[list[int]] = []
    for client in range(clients):
        own = [client % classes] if room[client % classes] else []
        if len(own) + np.count_nonzero(np.delete(room, own)) < classes_per_client:
            why = f"client {client} would hold fewer than {classes_per_client} classes"
            repair = "lower `clients` or `classes_per_client`"
            why = f"{why}, as one of n samples has n clients at most: {repair}"
            raise refusal("partition: labels", why, "classes_per_client", classes_per_client)
        while len(own) < classes_per_client:
            drawn = int(random.randint(classes))
            if drawn not in own and room[drawn]:
                own.append(drawn)
        room[own] -= 1
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
    labels: Labels, clients: int, alpha: float, random: RandomState
) -> list[Indices]:
    """N/K samples per client, with class proportions from Dirichlet(alpha * class frequencies)."""
    order = list(map(random.permutation, _by_class(labels)))
    left = np.array([len(member) for member in order])
    share = left / left.sum()
    assigned = []
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
        assigned.append(np.concatenate(hand).astype(np.int64))
    return assigned


def reusing_dirichlet(
    labels: Labels, clients: int, alpha: float, least: int, random: RandomState
) -> list[Indices]:
    """AAggFF's and FedEvg's released partitioner, which assigns the same samples again (item 42).

    A client draws N/K class labels with Dirichlet(alpha * u) proportions, u uniform on [0, 1] for
    each class, until the classes drawn more than ``least`` times add up to N/K samples. It gets
    that many first samples of each such class. These then stay available to later clients, whereas
    the rest of the class does not.

    Raises:
        UserError: if ``DIRICHLET_TRIES`` draws of a client yield too few samples.
    """
    left = _by_class(labels)
    ideal = len(labels) // clients
    assigned = []
    for _ in range(clients):
        hand: list[Indices] = []
        counted = tries = 0
        while counted < ideal:
            tries += 1
            if tries > DIRICHLET_TRIES:
                why = (
                    f"{DIRICHLET_TRIES} draws at alpha {alpha:g} gave a client no more than "
                    f"{least} samples of any class: lower `clients`"
                )
                raise refusal("partition: reusing_dirichlet", why, "clients", clients)
            proportions = _dirichlet_of_small(alpha * random.uniform(size=len(left)), random)
            drawn = random.choice(len(left), ideal, p=proportions)
            for label, count in zip(*np.unique(drawn, return_counts=True), strict=True):
                if count > least:
                    left[label] = left[label][:count]
                    hand.append(left[label])
                    counted += count
        assigned.append(np.concatenate(hand).astype(np.int64))
    return assigned


def _dirichlet_of_small(alpha: NDArray[np.float64], random: RandomState) -> NDArray[np.float64]:
    """A Dirichlet draw in log space: with small alpha, numpy's Gamma draws underflow to 0/0.

    It uses that Gamma(a) is distributed as Gamma(a + 1) times U ** (1 / a).
    """
    there = np.flatnonzero(alpha > 0)
    a = alpha[there]
    logs = np.log(random.standard_gamma(a + 1)) + np.log1p(-random.random_sample(len(a))) / a
    drawn = np.zeros(len(alpha))
    drawn[there] = np.exp(logs - logs.max())
    return drawn / drawn.sum()  # type: ignore[no-any-return]


def pachinko(
    labels: Labels, groups: Labels, clients: int, coarse: float, fine: float, random: RandomState
) -> list[Indices]:
    """Pachinko allocation (Reddi et al., ICLR 2021, appendix F.1): N/K samples for each client.

    A client has Dirichlet proportions of superclasses and, within each, of classes; for every
    sample it draws a superclass, then a class. Exhausted ones are removed, and the others keep
    their relative proportions.

    Args:
        groups: the superclasses.
        coarse: alpha of the superclasses.
        fine: alpha of the classes within one.
    """
    left = [random.permutation(members).tolist() for members in _by_class(labels)]
    classes = [np.unique(labels[groups == group]) for group in np.unique(groups)]
    there = [np.ones(len(own), np.bool_) for own in classes]
    open_classes = np.ones(len(classes), np.bool_)
    assigned = []
    for _ in range(clients):
        of_groups = _dirichlet_of_small(np.full(len(classes), coarse), random)
        of_classes = [_dirichlet_of_small(np.full(len(own), fine), random) for own in classes]
        hand = []
        for _ in range(len(labels) // clients):
            above = _drawn(of_groups, open_classes, random)
            below = _drawn(of_classes[above], there[above], random)
            members = left[classes[above][below]]
            hand.append(members.pop())
            there[above][below] = bool(members)
            open_classes[above] = there[above].any()
        assigned.append(np.array(hand, np.int64))
    return assigned


def _drawn(proportions: NDArray[np.float64], there: NDArray[np.bool_], random: RandomState) -> int:
    """A random index among those that are `there`; uniform if their proportions are all zero."""
    ends = np.cumsum(np.where(there, proportions, 0.0))
    if not ends[-1] > 0:
        ends = np.cumsum(there.astype(np.float64))
    return int(np.searchsorted(ends, random.random_sample() * ends[-1], side="right"))


def domains(
    labels: Labels, groups: Labels, assign: Callable[[Labels], list[Indices]]
) -> list[Indices]:
    """Apply `assign` to each group's samples, so that each client's samples are of one group."""
    assigned = []
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        assigned += [rows[hand] for hand in assign(labels[rows])]
    return assigned


def natural(
    groups: Labels, clients: int | None, random: RandomState, minimum: int = 1
) -> list[Indices]:
    """One client for each group, in the groups' order, or for `clients` random groups.

    Raises:
        UserError: if there are fewer groups than `clients`.
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


def at_server(labels: Labels, share: float) -> list[Indices]:
    """One client with the server's samples."""
    return [of_server(labels, share)]


def of_server(labels: Labels, share: float) -> Indices:
    """The server's samples: a ``share`` of each class, the same for every seed."""
    wanted = round(share * len(labels))
    return np.flatnonzero(stratified_choice(labels, wanted, RandomState([0, 2])))


def stratified_choice(labels: Labels, wanted: int, random: RandomState) -> NDArray[np.bool_]:
    """A bool mask [n] of `wanted` samples, proportional to the classes (largest remainders)."""
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
