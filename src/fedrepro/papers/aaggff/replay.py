"""Replay a log of losses through an adaptive weighting rule, without training.

:func:`play` processes rounds one by one and stores none, so it handles a million clients and
thousands of rounds; :func:`replay` takes a whole log and adds regret and its bound.

Regret is the loss of decisions less that of the best fixed one in hindsight (Hahn et al., ICML
2024, eq. 5).
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
import pandas as pd

from fedrepro.engine.method import Method
from fedrepro.methods import registry
from fedrepro.methods.adaptive_weighting.responses import Array
from fedrepro.methods.adaptive_weighting.rule import Decider, Decision, Observed
from fedrepro.methods.adaptive_weighting.simplex import minimise_quadratic
from fedrepro.support.errors import bad_value, missing_value, refusal

# The best fixed decision is computed for at most so many clients, as its cost grows with their
# cube.
HINDSIGHT = 500

TOLERANCE = 1e-10  # of the best fixed decision's total loss
# Added to a Hessian that may be singular, as a share of its mean diagonal entry. It only shortens
# steps; they converge to the same point. With less, the solver gives up on some.
PROXIMITY = 1e-5


@runtime_checkable
class Bounded(Protocol):
    """A rule whose regret has a proven bound."""

    def regret_bound(self, rounds: int, clients: int, share: float) -> float: ...


class Played(NamedTuple):
    """A round: the observed losses, the rule's memory before it, and its decision."""

    seen: Observed
    before: dict[str, Array]
    decision: Decision


@dataclass(frozen=True)
class Replay:
    """A replayed log.

    Attributes:
        clients: one row per round and client that took part: round (from 1), client, loss,
            response (NaN for rules without), weight (its mixing coefficient, AAggFF's eq. 95),
            coefficient (its entry in the decision over all clients; NaN for rules without memory).
        rounds: one row per round: round, participants, decision_loss, regret, bound.
        decision: the last decision over all clients [K], or None.
        linearised: whether the regret is that of the linearised losses, because clients were
            sampled or number more than :data:`HINDSIGHT`; else it is that of -log(1 + <p, r>).
    """

    clients: pd.DataFrame
    rounds: pd.DataFrame
    decision: Array | None
    linearised: bool


def rule_of(
    name: str, fidelity: str | None = None, hyperparameters: Mapping[str, object] | None = None
) -> Decider:
    """A rule by name.

    Args:
        fidelity: "paper" or "released"; by default as the name says, or as the paper.

    Raises:
        UserError: for an unknown name or hyperparameter, a fidelity that is not the name's, or a
            method that does not decide from losses alone.
    """
    parts = registry.parts()
    rules = [each for each, part in parts.items() if issubclass(part.cls, Decider)]
    plain, at, said = name.partition("@")
    if plain not in rules:
        other = ", which decide from losses alone" if plain in parts else ""
        raise bad_value("replay", "rule", name, f"one of {', '.join(rules)}{other}", rules)
    if at and fidelity not in (None, said):
        raise bad_value("replay", "fidelity", fidelity, f"none, or {said}, as the rule {name} says")
    text = name if at else f"{name}@{fidelity or 'paper'}"
    method: Method = registry.compose(text, {plain: hyperparameters or {}})[0]
    return cast(Decider, method)


def play(rule: Decider, clients: int, rounds: Iterable[Observed]) -> Iterator[Played]:
    """Yield the decisions of ``rule`` on rounds, which are read one at a time.

    Raises:
        UserError: for a loss that is negative or not finite, naming round and client.
    """
    memory = rule.memory(clients)
    for seen in rounds:
        _check(rule, seen)
        decision = rule.decide(memory, seen)
        yield Played(seen, memory, decision)
        memory = decision.memory


def _check(rule: Decider, seen: Observed) -> None:
    where = f"replay: round {seen.round + 1}"
    if not len(seen.cohort):
        raise refusal(where, "expected at least one participant", "participants")
    wrong = ~(np.isfinite(seen.losses) & (seen.losses >= 0))
    if wrong.any():
        client, loss = seen.cohort[wrong][0], float(seen.losses[wrong][0])
        expected = (
            "a finite number of at least 0; give --participants if only some clients took part"
        )
        raise bad_value(f"{where}: client {client}", "loss", loss, expected)
    if rule.full_participation and len(seen.cohort) < seen.clients:
        why = (
            f"{len(seen.cohort)} of {seen.clients} clients: expected all of them; aaggff_d learns "
            "from a sample of clients"
        )
        raise refusal(where, why, "participants", len(seen.cohort))


def replay(rule: Decider, clients: int, rounds: Iterable[Observed]) -> Replay:
    """Replay a log and compute the regret after every round.

    Raises:
        UserError: as :func:`play`, and for a log without rounds.
    """
    accounts = _Accounts(rule, clients)
    rows, decision, parts = [], None, []
    for played in play(rule, clients, rounds):
        seen, made = played.seen, played.decision
        nothing = np.full(len(seen.cohort), np.nan)
        decision = made.memory.get("decision")
        parts.append(
            pd.DataFrame(
                {
                    "round": seen.round + 1,
                    "client": seen.cohort,
                    "loss": seen.losses,
                    "response": nothing if made.response is None else made.response,
                    "weight": made.weights,
                    "coefficient": nothing if decision is None else decision[seen.cohort],
                }
            )
        )
        rows.append(accounts.add(played))
    if not rows:
        raise missing_value("replay", "losses", "at least one round")
    clients_table, rounds_table = pd.concat(parts, ignore_index=True), accounts.table(rows)
    return Replay(clients_table, rounds_table, decision, accounts.linear)


class _Accounts:
    """Tracks two regrets: of the decision losses, if all clients are observed, and linearised."""

    def __init__(self, rule: Decider, clients: int) -> None:
        self.rule = rule
        self.linear = clients > HINDSIGHT
        self.paid = self.linear_paid = 0.0
        self.responses: list[Array] = []
        self.best: Array | None = None
        self.slope = np.zeros(clients)

    def add(self, played: Played) -> dict[str, float]:
        seen, made, p = played.seen, played.decision, played.before.get("decision")
        share = len(seen.cohort) / seen.clients
        row: dict[str, float] = {"round": seen.round + 1, "participants": len(seen.cohort)}
        row |= dict.fromkeys(("decision_loss", "regret", "linear_regret", "bound"), math.nan)
        if made.response is None or made.gradient is None or p is None:
            return row
        self.linear = self.linear or share < 1
        sampled, elsewhere = p[seen.cohort], p.sum() - p[seen.cohort].sum()
        # Unobserved responses are replaced by the mean response, as in eq. 10.
        expected = sampled @ made.response + elsewhere * made.response.mean()
        row["decision_loss"] = -math.log1p(expected)
        self.linear_paid += float(sampled @ made.gradient + elsewhere * made.elsewhere)
        self.slope += made.elsewhere
        self.slope[seen.cohort] += made.gradient - made.elsewhere
        row["linear_regret"] = self.linear_paid - float(self.slope.min())
        if not self.linear:
            self.paid += float(decision_losses(p, made.response[None])[0])
            self.responses.append(made.response)
            self.best, least = best_fixed(np.stack(self.responses), self.best)
            row["regret"] = self.paid - least
        if isinstance(self.rule, Bounded) and _as_in_the_paper(self.rule):
            row["bound"] = self.rule.regret_bound(seen.round + 1, seen.clients, share)
        return row

    def table(self, rows: list[dict[str, float]]) -> pd.DataFrame:
        table = pd.DataFrame(rows)
        linear = table.pop("linear_regret")
        return table.assign(regret=linear) if self.linear else table


def _as_in_the_paper(rule: Decider) -> bool:
    """The theorems do not cover the released code."""
    return all(getattr(rule, item.name) == item.default for item in rule.deviations())


def decision_losses(decision: Array, responses: Array) -> Array:
    """-log(1 + <p, r>) for decisions [K] or [T, K] and responses [T, K], as [T]."""
    return np.asarray(-np.log1p((decision * responses).sum(-1)))


def best_fixed(responses: Array, start: Array | None = None) -> tuple[Array, float]:
    """The fixed decision with the least total loss, and that loss to 1e-10.

    Newton's method; each step solves a quadratic programme over the simplex.

    Args:
        responses: [T, K], at least 0.
        start: the first iterate, [K] in the simplex; fastest near the solution.
    """
    clients = responses.shape[1]
    p = np.full(clients, 1 / clients) if start is None else start
    for _ in range(200):
        weighted = responses / (1 + responses @ p)[:, None]
        gradient = -weighted.sum(0)
        if gradient @ p - gradient.min() <= TOLERANCE:  # bounds the gap to the optimum
            break
        hessian = weighted.T @ weighted
        hessian.flat[:: clients + 1] += PROXIMITY * max(hessian.trace() / clients, 1e-300)
        target = minimise_quadratic(hessian, gradient - hessian @ p)
        p = _towards(p, target, gradient, responses)
    return p, float(decision_losses(p, responses).sum())


def _towards(p: Array, target: Array, gradient: Array, responses: Array) -> Array:
    """Backtrack from ``target`` towards ``p`` until the loss decreases sufficiently."""
    now, promised, part = decision_losses(p, responses).sum(), gradient @ (target - p), 1.0
    while part > 1e-10:
        moved = p + part * (target - p)
        if decision_losses(moved, responses).sum() <= now + part * promised / 4:
            return np.asarray(moved)
        part /= 2
    return target
