"""Score a round's models, and record scores, a method's decisions and mixtures of two models."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrepro.data.tensors.samples import ClientSamples, TensorSamples
from fedrepro.engine import tree
from fedrepro.engine.context import Context, LoadedArtifact
from fedrepro.engine.evaluate import Scores, evaluate, evaluate_clients, score
from fedrepro.engine.method import LOSS, Method, name_of
from fedrepro.engine.processes import Stacked, distribute
from fedrepro.engine.round import (
    Federation,
    Round,
    choose_cohort,
    client_state_of,
    context_of,
    update_norms,
)
from fedrepro.engine.tree import Tree
from fedrepro.measures import over_clients
from fedrepro.run.assembly import Plan
from fedrepro.run.state import MIXTURE_COLUMNS, Rows, State, reported, why_it_ends
from fedrepro.support.errors import bad_value

# Between the shared model (0) and the client's own (1), for methods that interpolate the two.
MIXTURES = tuple(number / 10 for number in range(11))
TOGETHER = 4000  # samples whose outputs are held at once, but for a client that has more

Places = NDArray[np.int64]


def record(plan: Plan, state: State, before: Tree, played: Round) -> None:
    """Record the round just played, ``state.done``.

    Args:
        before: the server's state at the start of the round.
    """
    if not plan.federation.method.centralized:  # centralised training sends nothing
        state.bytes_down += played.bytes_down
        state.bytes_up += played.bytes_up
    _record_decision(state, played)
    finite = tree.all_finite(state.server)
    if _evaluates(plan, state) or not finite:
        _record_scores(plan, state, before, played, finite)
        if state.diverged_at is None and state.done < plan.federation.context.rounds:
            state.stopped = why_it_ends(plan, state.rounds)


def _evaluates(plan: Plan, state: State) -> bool:
    """Whether the round just played is evaluated."""
    last = state.done == plan.federation.context.rounds
    return last or state.done % plan.spec.setting.evaluate.every == 0


def files_of_round(
    plan: Plan, state: State, before: Tree, played: Round
) -> Iterator[tuple[str, Tree]]:
    """The files of the round just played, ``state.done``: pairs of name and tree.

    For a round that the setting keeps: every client's model, and the server's model after the
    round, if it has one.

    Args:
        before: the server's state at the start of the round.
    """
    method, number = plan.federation.method, state.done
    ctx = context_of(plan.federation, number - 1, played.cohort)
    if number in plan.spec.setting.save_models_at.get(plan.spec.method, []):
        for place, client in enumerate(played.cohort):
            yield (
                f"round{number}-client{client}",
                method.client_model(ctx, before, played.updates, place),
            )
        if "params" in state.server:
            yield f"round{number}-global", state.server["params"]
    images = method.images(ctx, state.server) if _evaluates(plan, state) else None
    if images is not None:
        yield f"round{number}-images", {"images": plan.networks.scaling.to_bytes(images)}


def context_after(plan: Plan, state: State) -> Context:
    """The context of the last round played."""
    return context_of(
        plan.federation, state.done - 1, choose_cohort(plan.federation, state.done - 1)
    )


def _record_scores(plan: Plan, state: State, before: Tree, played: Round, finite: bool) -> None:
    """Evaluate the model after a round and add its rows; a loss of NaN ends the run.

    Args:
        finite: whether the server's state is still finite.
    """
    federation, number = plan.federation, state.done
    ctx = context_of(federation, number - 1, played.cohort)
    row: dict[str, float] = {
        "round": number,
        "learning_rate": played.learning_rate,
        "bytes_down": 0 if federation.method.centralized else played.bytes_down,
        "bytes_up": 0 if federation.method.centralized else played.bytes_up,
        **{measure.name: math.nan for measure in plan.measures_of_round},
    }
    if plan.scores_clients:
        row |= _record_clients(plan, state, ctx, played)
    else:
        _record_updates(plan, state, played)
    classifies = federation.method.classifies
    if not classifies:
        row |= {"test_loss": math.nan, "test_accuracy": math.nan}
        row |= {"validation_loss": math.nan, "validation_accuracy": math.nan}
        row |= dict.fromkeys(plan.test_columns, math.nan)
    elif plan.test is not None and not federation.method.own_classifier:
        params = federation.method.eval_model(ctx, state.server, {})
        parts = plan.group_tests or [plan.test]
        task = ctx.task._replace(measures=plan.test_columns)
        scores = [evaluate(ctx.net, task, params, part, len(part), measured=True) for part in parts]
        means = {name: float(np.mean([score[name] for score in scores])) for name in scores[0]}
        row |= {f"test_{name}": means.pop(name) for name in ("loss", "accuracy")} | means
        if plan.validation is not None:
            kept = evaluate(ctx.net, ctx.task, params, plan.validation, len(plan.validation))
            row |= {f"validation_{name}": value for name, value in kept.items()}
    if plan.test is not None and plan.distills:
        row |= _score_ensemble(ctx, federation, plan.test, before, played)
    row |= _reported_by_server(plan, played)
    numbers = reported(federation.method, ctx, state.server)
    columns = {*state.rounds.columns}
    if odd := sorted((columns - {*row, *numbers}) | (numbers.keys() - columns)):
        where, wanted = f"method {name_of(federation.method)}: metrics", "the names of every round"
        raise bad_value(where, "name", odd[0], f"{wanted}: {', '.join(numbers)} now")
    state.rounds.put(row | numbers)
    losses = (row["test_loss"], row.get("client_loss", 0.0)) if classifies else ()
    if not finite or not all(map(math.isfinite, losses)):
        state.diverged_at = number


def _reported_by_server(plan: Plan, played: Round) -> dict[str, float]:
    """The measures that the method's server reports, of those that the setting names."""
    method, given = plan.federation.method, played.reported_by_server
    numbers = {name: _number(method, name, leaf) for name, leaf in given.items()}
    wanted = {measure.name for measure in plan.measures_of_round}
    return {name: value for name, value in numbers.items() if name in wanted}


def _reported_by_clients(
    plan: Plan, played: Round, clients: Sequence[int]
) -> dict[str, NDArray[np.float64]]:
    """The reported measures of ``clients`` that the setting names; NaN if one took no part."""
    method, cohort = plan.federation.method, played.cohort
    holders = np.array([_holder(plan.federation, client) for client in clients], dtype=np.int64)
    columns = {}
    for name in plan.reported_by_clients:
        values = np.full(plan.federation.context.clients, math.nan)
        for client, leaf in zip(cohort, played.reported_by_clients.get(name, ()), strict=False):
            values[client] = _number(method, name, leaf)
        columns[name] = values[holders]
    return columns


def _number(method: Method, name: str, leaf: Tensor) -> float:
    """A method's metrics as numbers.

    Raises:
        UserError: if one of them is not a single number.
    """
    if leaf.numel() != 1:
        shape = f"a tensor of shape {tuple(leaf.shape)}"
        raise bad_value(f"method {name_of(method)}", f"metrics.{name}", shape, "one number")
    return float(leaf)


@torch.no_grad()
def _score_ensemble(
    ctx: Context, federation: Federation, test: TensorSamples, before: Tree, played: Round
) -> dict[str, float]:
    """The score of the round's clients as an ensemble, on the test set (FedGO's Tables 7 and 9)."""
    given = LoadedArtifact({"x": test.x}, scaling=test.scaling)
    logits = federation.method.ensemble(ctx, before, played.updates, played.weights, given)
    scored = score(ctx.task, logits, test.y)
    return {f"ensemble_{name}": value for name, value in scored.items()}


def _record_clients(plan: Plan, state: State, ctx: Context, played: Round) -> dict[str, float]:
    """Score every client on its own samples; returns the aggregates."""
    assert plan.client_tests is not None
    scores = _score_clients(plan, state, ctx, plan.client_tests)
    kept = None
    if plan.client_validations is not None:
        kept = _score_clients(plan, state, ctx, plan.client_validations)
    clients = range(len(scores["samples"]))
    holders = [_holder(plan.federation, client) for client in clients]
    state.clients.put(
        {
            "round": state.done,
            "client": np.array(clients),
            "train_samples": plan.client_sizes,
            "test_samples": scores["samples"],
            "participations": participations(plan.federation, state)[holders],
            **scores,
            **({f"validation_{name}": each for name, each in kept.items()} if kept else {}),
            **_reported_by_clients(plan, played, clients),
        }
    )
    summary = _summary(scores, ctx.task.of_mean)
    if kept:
        chosen_by = _summary(kept, ctx.task.of_mean)
        summary |= {
            f"validation_{name}": chosen_by[f"test_{name}"] for name in ("loss", "accuracy")
        }
    return summary


def _record_updates(plan: Plan, state: State, played: Round) -> None:
    """Record the norm of each client's update."""
    sizes = plan.federation.clients.sizes
    state.clients.put(
        {
            "round": state.done,
            "client": played.cohort,
            "train_samples": [sizes[client] for client in played.cohort],
            "update_norm": update_norms(played.updates),
            **_reported_by_clients(plan, played, played.cohort),
        }
    )


def _record_decision(state: State, played: Round) -> None:
    """Record the clients' losses before training, and their aggregation weights."""
    if LOSS not in played.updates:
        return
    losses, weights = played.updates[LOSS].tolist(), played.weights.tolist()
    columns = {"round": state.done, "client": played.cohort, "loss": losses, "weight": weights}
    state.decisions.put(columns)


def mixtures(plan: Plan, state: State) -> Rows | None:
    """Every client's scores at every interpolation of its two models, after the last round.

    None if clients are not evaluated or do not have two models.
    """
    federation = plan.federation
    interpolates = any(layer.interpolates for layer in federation.method.layers())
    if plan.client_tests is None or not interpolates:
        return None
    ctx = context_after(plan, state)
    tests, net = plan.client_tests, ctx.net
    clients, weights = (
        each.ravel()
        for each in np.meshgrid(np.arange(len(tests)), np.array(MIXTURES), indexing="ij")
    )

    def score_of(places: Places) -> Scores:
        (place,) = places
        client, weight = int(clients[place]), float(weights[place])
        client_state = _client_state_of(plan, state, ctx, client)
        model = federation.method.interpolate(ctx, state.server, client_state, weight)
        return evaluate_clients(net, ctx.task, lambda _: model, tests, clients[places])

    scores = _dealt_out(
        plan,
        list(np.arange(len(clients))[:, None]),
        score_of,
        lambda place: f"client {clients[place]} at weight {weights[place]:g}",
    )
    rows = Rows((*MIXTURE_COLUMNS, *ctx.task.measures))
    test_samples = scores.pop("samples")
    rows.put({"client": clients, "weight": weights, "test_samples": test_samples, **scores})
    return rows


def _score_clients(plan: Plan, state: State, ctx: Context, samples: ClientSamples) -> Scores:
    """Score every client's model on its own samples.

    If the run scores clients together (:func:`fedrepro.provenance.arithmetic.scores_together`),
    those that share a model pass through the network in batches that ignore where a client ends.
    """
    federation, server = plan.federation, state.server
    method, holders = federation.method, {*state.client_states.clients()}
    everyone = any(layer.scores_first_states for layer in method.layers())
    shared = None if everyone else method.eval_model(ctx, server, {})

    def model_of(client: int) -> Tree:
        # One client's state at a time: they need not all fit in memory.
        if shared is not None and _holder(federation, client) not in holders:
            return shared
        return method.eval_model(ctx, server, _client_state_of(plan, state, ctx, client))

    def score_of(clients: Places) -> Scores:
        together = shared if plan.together else None
        return evaluate_clients(ctx.net, ctx.task, model_of, samples, clients, together)

    # The groups of clients decide no bit, unless they are scored together.
    alone = plan.workers > 1 and not plan.together
    before = np.cumsum(samples.sizes) - samples.sizes
    group = np.arange(len(samples)) if alone else before // TOGETHER
    cuts = np.flatnonzero(np.diff(group)) + 1
    groups: list[Places] = np.split(np.arange(len(samples)), cuts)
    return _dealt_out(plan, groups, score_of, f"client {{}} after round {state.done}".format)


def _dealt_out(
    plan: Plan,
    groups: Sequence[Places],
    score_of: Callable[[Places], Scores],
    name_of: Callable[[int], str],
) -> Scores:
    """The scores of groups of places, computed by as many processes as the run has.

    Args:
        name_of: what a place stands for, in errors.
    """
    if plan.workers == 1:
        scored = [score_of(group) for group in groups]
        return {name: np.concatenate([each[name] for each in scored]) for name in scored[0]}
    numbers = Stacked(sum(map(len, groups)))

    def keep(number: int) -> None:
        scores = score_of(groups[number])
        for row, place in enumerate(groups[number].tolist()):
            numbers.put(place, {name: torch.as_tensor(each[row]) for name, each in scores.items()})

    with numbers:
        distribute(
            keep,
            range(len(groups)),
            plan.workers,
            lambda number: f"the scores from {name_of(int(groups[number][0]))} on",
        )
        numbers.refuse_gaps(name_of)
    return {name: column.numpy() for name, column in numbers.tree.items()}


def _client_state_of(plan: Plan, state: State, ctx: Context, client: int) -> Tree:
    """A client's state; empty before it has taken part, so that it uses the shared model.

    With a method that `scores_first_states`, it is what the client would start from.
    """
    federation = plan.federation
    holder = _holder(federation, client)
    if any(layer.scores_first_states for layer in federation.method.layers()):
        return client_state_of(federation, ctx, state.client_states, holder)
    return state.client_states.get(holder) or {}


def _holder(federation: Federation, client: int) -> int:
    """The id of the client that holds a client's data: 0 for all if they are pooled."""
    return 0 if federation.method.centralized else client


def participations(federation: Federation, state: State) -> NDArray[np.int64]:
    """The number of rounds, of those played, in which each client took part.

    A cohort is drawn again only after a run has resumed: ``state`` keeps the counts.
    """
    if state.taken is None:
        state.taken = np.zeros(federation.context.clients, dtype=np.int64)
    for round in range(state.counted, state.done):
        state.taken[choose_cohort(federation, round)] += 1
    state.counted = state.done
    return state.taken


def _summary(scores: Scores, of_mean: bool) -> dict[str, float]:
    """Aggregates over clients with test samples; the mean by samples replaces a missing test set.

    A client without predictions (texts without a known word) has no accuracy and is left out of
    the mean accuracies. If a client's loss is NaN, so is the mean, unless the loss is only known as
    a mean (``of_mean``), which a client may not have.

    Further measures are aggregated both ways: plain (``client_``) and weighted by samples
    (``test_``).
    """
    tested = scores["samples"] > 0
    of = {name: values[tested] for name, values in scores.items()}
    samples, losses = of.pop("samples"), of.pop("loss")
    sizes = samples.astype(np.float64)
    if of_mean and not np.isnan(losses).all():
        samples, losses = samples[~np.isnan(losses)], losses[~np.isnan(losses)]
    return {
        "client_loss": float(losses.mean()),
        "client_accuracy_std": over_clients.deviation(of["accuracy"]),
        "test_loss": float(np.average(losses, weights=samples)),
        **{
            f"{kind}_{name}": over_clients.average(values, weights)
            for name, values in of.items()
            for kind, weights in (("client", None), ("test", sizes))
        },
    }
