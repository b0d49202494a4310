"""The wrapper dp: identity, sensitivity, the noise, refusals; and epsilon against closed forms."""

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

from fedrepro.check.world import Memory, play
from fedrepro.engine import tree
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.round import begin, context_of, play_round
from fedrepro.methods import registry
from fedrepro.methods.dp import DP
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.norm_clip import NormClip, clipped
from fedrepro.run.privacy import epsilon
from support.closeness import assert_close
from support.refusals import Fault, refused
from support.worlds import federation

EQUAL = FedAvg(sample_weighted=False)  # the plain mean of a cohort that is a sample


def played(method: Method) -> tree.Tree:
    server, _, _ = play(federation(method=method, cohort=4), until=3)
    params: tree.Tree = server["params"]
    return params


def test_without_noise_and_clip_it_is_the_inner_method_to_the_bit() -> None:
    open_ = DP(EQUAL, clip=1e30, noise_multiplier=0.0)
    assert_close(played(open_), played(EQUAL), 0)


def test_without_noise_it_is_norm_clipping() -> None:
    bound = 0.05
    clipping = played(NormClip(EQUAL, bound=bound))
    assert_close(played(DP(EQUAL, clip=bound, noise_multiplier=0.0)), clipping, 0)
    assert any(
        (left != right).any()
        for left, right in zip(tree.leaves(clipping), tree.leaves(played(EQUAL)), strict=True)
    )


@pytest.mark.parametrize("sent", [0.0, 1e30, -7.0, math.nan, math.inf], ids=str)
def test_one_client_moves_the_sum_by_at_most_the_clip(sent: float) -> None:
    """Whatever it sends; so one that is replaced by another, by at most twice the clip."""
    clip, cohort = 0.5, 4
    world = federation(method=DP(FedAvg(), clip=clip, noise_multiplier=1.0), cohort=cohort)

    def after(last: float | None) -> Tensor:
        """The model, with the noise of the round; None: the last client's update is zero."""

        def attack(ctx: object, updates: tree.Tree) -> tree.Tree:
            return tree.apply(
                lambda leaf: torch.cat([leaf[:-1], torch.full_like(leaf[-1:], last or 0.0)]),
                updates,
            )

        server, _ = play_round(replace(world, attack=attack), begin(world), Memory(), 0)
        return torch.cat([leaf.flatten() for leaf in tree.leaves(server["params"])])

    moved = float((after(sent) - after(None)).norm()) * cohort
    assert moved <= clip * (1 + 1e-9)
    assert moved == pytest.approx(clip if math.isfinite(sent) and sent else 0.0, abs=1e-9)


def test_the_noise_has_the_stated_spread_and_is_new_in_each_round() -> None:
    clip, multiplier, cohort = 0.5, 3.0, 4
    world = federation(method=DP(FedAvg(), clip=clip, noise_multiplier=multiplier), cohort=cohort)
    quiet = replace(world, method=DP(FedAvg(), clip=clip, noise_multiplier=0.0))
    before, noises = begin(world), []
    for round in range(40):
        noisy, _ = play_round(world, before, Memory(), round)
        plain, _ = play_round(quiet, before, Memory(), round)
        apart = tree.subtract(noisy["params"], plain["params"])
        noises.append(torch.cat([leaf.flatten() for leaf in tree.leaves(apart)]) * cohort)
    drawn = torch.cat(noises)
    count = len(drawn)
    # Four standard errors of a variance and of a mean.
    variance = (multiplier * clip) ** 2
    assert float(drawn.var()) == pytest.approx(variance, abs=4 * variance * (2 / count) ** 0.5)
    assert float(drawn.mean()) == pytest.approx(0, abs=4 * (variance / count) ** 0.5)
    assert not torch.equal(noises[0], noises[1])


def test_of_clients_that_drop_out_neither_update_nor_noise_is_divided() -> None:
    """The sum of those that arrived, over their number; the sum's noise is the same."""
    method = DP(FedAvg(), clip=0.5, noise_multiplier=2.0)
    world = federation(method=method, cohort=5)
    server, moved = begin(world), []
    for arrived in (1, 2, 5):
        ctx = replace(context_of(world, 0, list(range(arrived))), cohort_size=5)
        zeros = tree.apply(lambda leaf, n=arrived: torch.zeros(n, *leaf.shape), server["params"])
        weights, _ = method.aggregation_weights(ctx, server, {"delta": zeros})
        after = method.server_update(ctx, server, {"delta": zeros}, weights)
        away = tree.subtract(after["params"], server["params"])
        moved.append(tree.scale(away, float(arrived)))
    assert_close(moved[1], moved[0], 1e-12)
    assert_close(moved[2], moved[0], 1e-12)
    assert float(tree.square_norm(moved[0])) > 0


def test_the_noise_follows_from_the_seed() -> None:
    assert_close(played(DP(FedAvg())), played(DP(FedAvg())), 0)


def test_clients_count_the_same_whatever_their_sizes() -> None:
    world = federation(method=DP(FedAvg(), clip=0.05, noise_multiplier=0.0), cohort=4)
    before = begin(world)
    server, seen = play_round(world, before, Memory(), 0)
    ctx = context_of(world, 0, seen.cohort)
    assert len(set(ctx.sizes.tolist())) > 1
    mean = tree.apply(lambda leaf: leaf.mean(0), clipped(seen.updates["delta"], 0.05))
    assert_close(server["params"], tree.subtract(before["params"], mean), 1e-12)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("dp+scaffold", {"key": "wrapper", "value": "dp", "names": ("`delta`", "server")}),
        ("dp+fedtgp", {"key": "wrapper", "value": "dp", "names": ("`delta`", "server")}),
        ("dp+aaggff_d+fedavg", {"key": "wrapper", "names": "coefficients"}),
        ("median+dp+fedavg", {"key": "wrapper", "names": "coefficients"}),
        ("dp+norm_clip+fedavg", {"key": "wrapper", "value": "dp", "names": "would"}),
        ("dp+central", {"key": "wrapper", "value": "dp", "names": "trains"}),
    ],
)
def test_what_sends_more_than_a_clipped_update_is_refused(name: str, fault: Fault) -> None:
    with refused(**fault):
        registry.compose(name)


def test_running_statistics_are_refused() -> None:
    net = Net(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    with refused(file="dp", key="1.running_mean", names="BatchNorm"):
        DP(FedAvg()).check(replace(federation("fedavg").context, net=net))


@pytest.mark.parametrize(
    ("key", "value"), [("clip", 0.0), ("clip", math.inf), ("noise_multiplier", -1.0)]
)
def test_bad_hyperparameters_are_one_line(key: str, value: float) -> None:
    with refused("value", file="method dp", key=key, value=value):
        registry.compose("dp", {"dp": {key: value}})


def exact_epsilon(multiplier: float, rounds: int, delta: float) -> float:
    """Of Gaussian mechanisms without sampling (Balle and Wang, ICML 2018, Theorem 8), by bisection.

    With one client replaced, the sum moves by 2 S: mu = 2 sqrt(rounds) / z.
    """
    mu = 2 * rounds**0.5 / multiplier
    low, high = 0.0, 1000.0
    while high - low > 1e-9:
        eps = (low + high) / 2
        found = norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu)
        low, high = (eps, high) if found > delta else (low, eps)
    return high


def sampled_epsilon(multiplier: float, q: float, rounds: int, delta: float) -> float:
    """Theorem 9 of Wang et al. (AISTATS 2019), and Proposition 12 of Canonne et al. (2020)."""
    each = [
        j / (2 * (multiplier / 2) ** 2) for j in range(130)
    ]  # the Gaussian's divergence of order j

    def divergence(order: int) -> float:
        second = q**2 * math.comb(order, 2) * min(4 * math.expm1(each[2]), 2 * math.exp(each[2]))
        terms = (
            2 * q**j * math.comb(order, j) * math.exp((j - 1) * each[j])
            for j in range(3, order + 1)
        )
        return math.log1p(math.fsum([second, *terms])) / (order - 1)

    orders = range(2, 40)
    return min(
        rounds * divergence(a) + math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a in orders
    )


@pytest.mark.parametrize(("multiplier", "q"), [(8.0, 0.01), (8.0, 0.1), (16.0, 0.1)])
def test_epsilon_of_a_sample_is_within_the_theorem(multiplier: float, q: float) -> None:
    """dp-accounting takes the tighter Theorem 27."""
    found = epsilon(multiplier, int(1000 * q), 1000, 100, 1e-3)
    bound = sampled_epsilon(multiplier, q, 100, 1e-3)
    assert 0.3 * bound <= found <= bound * (1 + 1e-9)


@pytest.mark.parametrize(("multiplier", "rounds"), [(4.0, 1), (8.0, 10), (20.0, 100)])
def test_epsilon_of_all_clients_bounds_the_exact_one(multiplier: float, rounds: int) -> None:
    found, exact = (
        epsilon(multiplier, 10, 10, rounds, 1e-5),
        exact_epsilon(multiplier, rounds, 1e-5),
    )
    assert exact <= found <= 1.15 * exact


def test_epsilon_grows_with_rounds_and_falls_with_noise_and_with_clients() -> None:
    usual = epsilon(4.0, 10, 1000, 50, 1e-3)
    assert epsilon(4.0, 10, 1000, 100, 1e-3) > usual
    assert epsilon(8.0, 10, 1000, 50, 1e-3) < usual
    assert epsilon(4.0, 10, 10_000, 50, 1e-3) < usual < epsilon(4.0, 10, 10, 50, 1e-3)


def test_without_noise_there_is_no_epsilon_and_without_rounds_nothing_is_spent() -> None:
    assert epsilon(0.0, 10, 100, 1, 0.01) == math.inf
    assert epsilon(1.0, 10, 100, 0, 0.01) == 0
