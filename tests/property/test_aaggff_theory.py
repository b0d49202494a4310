"""What the theory of AAggFF promises (Hahn et al., ICML 2024), on random and adversarial losses."""

import csv
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrepro.methods.adaptive_weighting import bounds, linear
from fedrepro.methods.adaptive_weighting.responses import (
    DISTRIBUTIONS,
    distribution,
    relative,
    responses,
)
from fedrepro.methods.adaptive_weighting.rule import Decider, Observed
from fedrepro.methods.adaptive_weighting.simplex import minimise_quadratic, nearest
from fedrepro.papers.aaggff import replay
from fedrepro.papers.aaggff.replay import Bounded, play, rule_of
from support.places import ROOT

CDFS = list(DISTRIBUTIONS)
PUBLISHED = ROOT / "reports/papers/aaggff/cells.csv"

# (round, present decision, generator) -> losses of all clients
Adversary = Callable[[int, np.ndarray, np.random.Generator], np.ndarray]


def exponential(round: int, p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.exponential(size=len(p))


def heavy(round: int, p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.pareto(1.1, size=len(p)) + 1e-9


def lone(round: int, p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One client suffers always."""
    return np.where(np.arange(len(p)) == 0, 1e3, 1e-9)


def cruel(round: int, p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The client that the server cares least for suffers."""
    return np.where(np.arange(len(p)) == p.argmin(), 1e3, 1e-9)


def rotating(round: int, p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.where(np.arange(len(p)) == round % len(p), 1e3, 1e-9)


def alternating(round: int, p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Blocks that grow: what was right for long becomes wrong for longer."""
    return np.where(np.arange(len(p)) == int(np.log2(round + 1)) % len(p), 1e3, 1e-9)


ADVERSARIES = (exponential, heavy, lone, cruel, rotating, alternating)
named = pytest.mark.parametrize("adversary", ADVERSARIES, ids=lambda each: each.__name__)


def against(rule: Decider, clients: int, rounds: int, adversary: Adversary, seed: int = 0):  # type: ignore[no-untyped-def]
    """Rounds in which the adversary sees the decision before it sets the losses."""
    rng = np.random.default_rng(seed)
    memory = rule.memory(clients)
    for round in range(rounds):
        losses = adversary(round, memory["decision"], rng)
        seen = Observed(round, clients, np.arange(clients), losses, np.ones(clients))
        decision = rule.decide(memory, seen)
        yield seen, memory["decision"], decision
        memory = decision.memory


def true_regret(history: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Of decisions and responses, against the best fixed decision."""
    decisions, seen = (np.array(each) for each in zip(*history, strict=True))
    return float(replay.decision_losses(decisions, seen).sum()) - replay.best_fixed(seen)[1]


@named
@pytest.mark.parametrize("cdf", CDFS)
@pytest.mark.parametrize(("clients", "upper"), [(2, None), (20, None), (20, 1.0)])
def test_regret_of_s_obeys_theorem_5_1(
    adversary: Adversary, cdf: str, clients: int, upper: float | None
) -> None:
    """Also with responses up to 1, not 1 / K, where a round's loss is anything down to -log 2."""
    rule = rule_of("aaggff_s", "paper", {"cdf": cdf, "upper": upper})
    rounds = 300
    history = [(p, made.response) for _, p, made in against(rule, clients, rounds, adversary)]
    assert true_regret(history) <= bounds.newton_bound(rounds, clients, upper or 1 / clients)


@pytest.mark.parametrize("cdf", CDFS)
def test_to_whom_suffers_most_in_every_round_goes_all_in_hindsight(cdf: str) -> None:
    """Also where all rounds are alike, and the Hessian is as good as singular."""
    rule = rule_of("aaggff_s", "paper", {"cdf": cdf})
    seen = np.array([made.response for _, _, made in against(rule, 20, 250, lone)])
    all_of_it = np.eye(20)[0]
    for rounds in (10, 50, 100, 150, 200, 250):
        best, least = replay.best_fixed(seen[:rounds])
        assert best == pytest.approx(all_of_it, abs=1e-6)
        assert least == pytest.approx(replay.decision_losses(all_of_it, seen[:rounds]).sum())


@named
@pytest.mark.parametrize("cdf", CDFS)
@pytest.mark.parametrize("clients", [2, 20])
def test_regret_of_d_obeys_theorem_5_2(adversary: Adversary, cdf: str, clients: int) -> None:
    """C = 1, where the theorem holds without an expectation."""
    rule = rule_of("aaggff_d", "paper", {"cdf": cdf})
    rounds, history, paid = 400, [], 0.0
    slope = np.zeros(clients)
    for seen, p, made in against(rule, clients, rounds, adversary):
        history.append((p, made.response))
        gradient = linear.Gradient(made.gradient, made.elsewhere).whole(seen.cohort, clients)
        paid, slope = paid + p @ gradient, slope + gradient
    bound = bounds.linear_bound(rounds, clients, 3.0)
    assert true_regret(history) <= bound
    assert paid - slope.min() <= bound


@pytest.mark.parametrize("cdf", CDFS)
def test_expected_regret_of_d_under_sampling(cdf: str) -> None:
    """Theorem 5.2 in the mean over samples, for the linearised losses."""
    clients, chosen, rounds = 12, 4, 200
    rng = np.random.default_rng(3)
    rule = rule_of("aaggff_d", "paper", {"cdf": cdf})
    regrets = []
    for _ in range(5):

        def log() -> Iterator[Observed]:
            for round in range(rounds):
                cohort = np.sort(rng.choice(clients, chosen, replace=False))
                losses = rng.exponential(size=chosen) * (1 + (cohort == 0) * 5)
                yield Observed(round, clients, cohort, losses, np.ones(chosen))

        paid, slope = 0.0, np.zeros(clients)
        for seen, before, made in play(rule, clients, log()):
            gradient = linear.Gradient(made.gradient, made.elsewhere).whole(seen.cohort, clients)
            paid, slope = paid + before["decision"] @ gradient, slope + gradient
        regrets.append(paid - slope.min())
    assert isinstance(rule, Bounded)
    assert np.mean(regrets) <= rule.regret_bound(rounds, clients, chosen / clients)


def positive() -> st.SearchStrategy[float]:
    return st.floats(0, 1e6, allow_nan=False)


@st.composite
def sampled(draw: st.DrawFn) -> tuple[np.ndarray, int, np.ndarray]:
    """Losses of a sample, how many clients there are, and who was sampled."""
    losses = np.array(draw(st.lists(positive(), min_size=1, max_size=9)))
    clients = len(losses) + draw(st.integers(0, 9))
    cohort = np.sort(draw(st.permutations(range(clients)))[: len(losses)])
    return losses, clients, cohort


@given(sampled(), st.sampled_from(CDFS), st.floats(0, 0.9), st.floats(0.01, 3), st.integers(0, 99))
@settings(deadline=None, max_examples=150)
def test_lipschitz_constants_are_never_exceeded(
    case: tuple[np.ndarray, int, np.ndarray], cdf: str, lower: float, width: float, seed: int
) -> None:
    """Lemma 4.1 for the gradient of the decision loss, Lemma A.2 for the linearised one."""
    losses, clients, cohort = case
    share, upper = len(losses) / clients, lower + width
    response = responses(losses, cdf, lower, upper)
    assert (lower <= response).all() and (response <= upper).all()
    p = np.random.default_rng(seed).dirichlet(np.full(clients, 0.3))
    within = p[cohort] / max(p[cohort].sum(), 1e-300)
    gradient = response / (1 + within @ response)
    assert gradient.max() <= bounds.lipschitz(lower, upper) * (1 + 1e-12)
    mean = float(response.mean())
    estimated = linear.estimate(response, share, mean)
    whole = linear.linearise(estimated, mean, p, cohort, 1.0).whole(cohort, clients)
    constant = bounds.linearised_lipschitz(lower, upper, share)
    assert np.abs(whole).max() <= constant * (1 + 1e-12)


def test_constants_at_the_settings_of_the_paper() -> None:
    """L = 1 / K for S and C + 2 for D (discrepancies 6 and 9)."""
    assert bounds.lipschitz(0, 1 / 7) == 1 / 7
    assert bounds.linearised_lipschitz(0, 0.25, 0.25) == 2.25
    bound = 2 * (1 + np.log(1 + 100 / (16 * 7)))
    assert bounds.newton_bound(100, 7, 1 / 7) == pytest.approx(bound)


def mean_estimate(values: np.ndarray, chosen: int, imputed: float | None) -> np.ndarray:
    """The estimate's mean over all samples; None imputes each sample's own mean."""
    clients, estimates = len(values), []
    for sample in combinations(range(clients), chosen):
        cohort = np.array(sample)
        base = float(values[cohort].mean()) if imputed is None else imputed
        estimate = linear.estimate(values[cohort], chosen / clients, base)
        estimates.append(estimate.whole(cohort, clients))
    return np.mean(estimates, axis=0)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=7), st.floats(-1, 2), st.integers(1, 7))
@settings(deadline=None, max_examples=60)
def test_doubly_robust_estimate_is_unbiased_for_a_fixed_imputation(
    values: list[float], imputed: float, chosen: int
) -> None:
    chosen = min(chosen, len(values))
    assert mean_estimate(np.array(values), chosen, imputed) == pytest.approx(values, abs=1e-12)


def test_doubly_robust_estimate_is_biased_with_the_samples_own_mean() -> None:
    """Discrepancy 5: E[estimate_i] = r_i + mu - E[mean of the sample | i is in it]."""
    values, chosen = np.array([0.05, 0.4, 0.1, 0.32, 0.22, 0.48]), 3
    clients = len(values)
    conditional = []
    for client in range(clients):
        samples = (s for s in combinations(range(clients), chosen) if client in s)
        conditional.append(np.mean([values[list(sample)].mean() for sample in samples]))
    found = mean_estimate(values, chosen, None)
    assert found == pytest.approx(values + values.mean() - conditional, abs=1e-12)
    bias = found - values
    assert np.abs(bias).max() > 0.04 and bias.sum() == pytest.approx(0, abs=1e-12)


@named
@pytest.mark.parametrize("rule", ["aaggff_s", "aaggff_d", "afl", "term", "qfedavg"])
@pytest.mark.parametrize("fidelity", ["paper", "released"])
def test_decisions_stay_in_the_simplex(adversary: Adversary, rule: str, fidelity: str) -> None:
    decider = rule_of(rule, fidelity)
    clients, rng, p = 9, np.random.default_rng(1), np.full(9, 1 / 9)
    memory = decider.memory(clients)
    for round in range(100):
        losses = adversary(round, p, rng)
        seen = Observed(round, clients, np.arange(clients), losses, np.ones(clients))
        decision = decider.decide(memory, seen)
        p = memory.get("decision", decision.weights)
        memory = decision.memory
        for found in (decision.weights, memory.get("decision", decision.weights)):
            assert found.min() >= 0 and abs(found.sum() - 1) <= 1e-9


def in_order(fidelity: str, rule: str, cdf: str, seed: int) -> Iterator[np.ndarray]:
    """Decisions while client 0 always has the least loss, client 1 the next, ..."""
    rng = np.random.default_rng(seed)
    clients = int(rng.integers(2, 9))
    log = (
        Observed(t, clients, np.arange(clients), np.sort(rng.exponential(size=clients)) + 1e-3,
                 np.ones(clients))
        for t in range(60)
    )  # fmt: skip
    for each in play(rule_of(rule, fidelity, {"cdf": cdf}), clients, log):
        yield each.decision.memory["decision"]


@pytest.mark.parametrize("rule", ["aaggff_s", "aaggff_d"])
@pytest.mark.parametrize("cdf", CDFS)
@pytest.mark.parametrize("seed", range(4))
def test_coefficients_keep_the_order_of_losses(rule: str, cdf: str, seed: int) -> None:
    for decision in in_order("paper", rule, cdf, seed):
        assert (np.diff(decision) >= -1e-9).all()


@pytest.mark.parametrize("rule", ["aaggff_s", "aaggff_d"])
@pytest.mark.parametrize("seed", range(8))
def test_released_normal_distribution_reverses_the_order(rule: str, seed: int) -> None:
    """Discrepancy 3: the client with the least loss gets the greatest coefficient."""
    for decision in in_order("released", rule, "normal", seed):
        assert (np.diff(decision) <= 1e-9).all() and decision[0] > decision[-1]


def table_a1() -> list[dict[str, str]]:
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["item"] == "table_a1"]
    return [row for row in rows if row["metric"] == "cdf_response"]


def test_table_a1() -> None:
    """The paper put 0.23, 2.31, 0.46, rounded ratios, into the functions."""
    rows, losses = table_a1(), [0.01, 0.10, 0.02]
    assert len(rows) == 18
    rounded = np.round(relative(np.array(losses)), 2)
    for row in rows:
        loss = float(dict(part.split("=") for part in row["setting"].split(",")[:2])["F"])
        value = float(distribution(row["method"])(rounded)[losses.index(loss)])
        assert f"{value:.2f}" == row["mean"], row


def test_table_a1_without_rounding_differs_in_the_doubted_cell_only() -> None:
    losses = [0.01, 0.10, 0.02]
    for row in table_a1():
        loss = float(dict(part.split("=") for part in row["setting"].split(",")[:2])["F"])
        value = responses(np.array(losses), row["method"], 0, 1)[losses.index(loss)]
        assert (f"{value:.2f}" == row["mean"]) == (not row["doubt"]), row


@given(st.integers(1, 8), st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_projections_are_optimal(clients: int, seed: int) -> None:
    """The optimality conditions: no feasible direction descends."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(clients, clients + 2))
    curvature = root @ root.T + 0.1 * np.eye(clients)
    slope = 5 * rng.normal(size=clients)
    p = minimise_quadratic(curvature, slope)
    gradient = curvature @ p + slope
    assert gradient @ p - gradient.min() <= 1e-9 * np.abs(curvature).max()
    point = 3 * rng.normal(size=clients)
    same = minimise_quadratic(np.eye(clients), -point)
    assert nearest(point) == pytest.approx(same, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_best_fixed_decision_is_certified(seed: int) -> None:
    """Cover's condition: no client's mean relative growth exceeds 1 at the best decision."""
    rng = np.random.default_rng(seed)
    seen = rng.uniform(size=(50, 6)) ** 3
    p, least = replay.best_fixed(seen)
    growth = ((1 + seen) / (1 + seen @ p)[:, None]).mean(0)
    assert growth.max() <= 1 + 1e-9
    for _ in range(50):
        other = rng.dirichlet(np.full(6, 0.3))
        assert replay.decision_losses(other, seen).sum() >= least - 1e-9
