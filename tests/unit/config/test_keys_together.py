"""Which keys go together: both sides of the limit that each check of a configuration draws."""

from typing import Any

import pytest
from pydantic import BaseModel

from fedrepro.config.config_file import Resources, Seeds
from fedrepro.config.figures import HeatMap, Planes, Trend
from fedrepro.config.metrics import Metric, OverClients, RoundsTo
from fedrepro.config.searches import Search, Searched
from fedrepro.config.settings import (
    AttackSpec,
    AvailabilitySpec,
    Cohorts,
    Evaluate,
    OptimizerSpec,
    Setting,
    Stop,
)
from fedrepro.config.tables import Table
from fedrepro.support.errors import UserError
from fedrepro.support.typed_yaml import Typed, validate
from support.search_world import EXPERIMENT

S: dict[str, Any] = EXPERIMENT["settings"]["s"]
ROW, COLUMN = {"label": "r", "setting": "s"}, {"label": "A", "method": "fedavg"}
MAP = {
    "kind": "heat_map", "title": "t", "setting": "s", "x": {"label": "x", "values": [1, 2]},
    "y": {"label": "y", "values": [1]},
}  # fmt: skip
VIEW = {"label": "a", "setting": "s", "method": "fedavg"}
FIGURE = {"title": "t"}


def panel(*rows: list[str]) -> dict[str, Any]:
    return {**MAP, "panels": [{"label": "p", "methods": [*rows]}]}


def planes(kind: str, *through: list[str], **more: Any) -> dict[str, Any]:
    return {
        **FIGURE,
        "kind": kind,
        "panels": [{**VIEW, "through": each, **more} for each in through],
    }


def trend(*methods: list[str]) -> dict[str, Any]:
    points = [{"at": at, "setting": "s", "methods": each} for at, each in enumerate(methods)]
    lines = {"kind": "trend", "lines": ["one", "two"]}
    return {**FIGURE, **lines, "panels": [{"label": "p", "x": "x", "points": points}]}


def search(*methods: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"title": "t", "setting": "s", "validation": 0.2, "methods": [*methods], **more}


PROX = {"method": "fedprox", "grid": {"mu": [1.0]}}
# Model, what it takes, and what it refuses, which differs as little as possible.
PAIRS: list[tuple[type[BaseModel], dict[str, Any], dict[str, Any]]] = [
    (OptimizerSpec, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.9, "name": "adam"}),
    (OptimizerSpec, {"lr": 0.1, "betas": [0.9, 0.999]}, {"lr": 0.1, "betas": [0.9, 0.99]}),
    (OptimizerSpec, {"lr": 0.1, "name": "adam", "betas": [0.9, 0.99]}, {"lr": 0, "name": "adam"}),
    (OptimizerSpec, {"lr": 0.1, "momentum": 0.999}, {"lr": 0.1, "momentum": 1}),
    (Evaluate, {"per_class": 2, "groups": True}, {"per_class": 2}),
    (Stop, {"patience": 1}, {"patience": 0}),
    (Stop, {"at": 1.01}, {"at": 1}),
    (Stop, {"at": 100}, {"at": 100.1}),
    (Stop, {"measure": "loss", "at": 0.5}, {"measure": "loss"}),
    (Stop, {"measure": "loss", "at": 200}, {"measure": "lost", "at": 200}),
    (AttackSpec, {"kind": "label_flip", "share": 0.2},
     {"kind": "label_flip", "share": 0.2, "scale": 1.0}),
    (AttackSpec, {"kind": "sign_flip", "share": 0.2, "scale": 1.0},
     {"kind": "sign_flip", "share": 0.2, "scale": 0}),
    (AvailabilitySpec, {"deadline": 1, "spread": 0.5}, {"spread": 0.5}),
    (AvailabilitySpec, {"deadline": 1, "late": "partial"}, {"late": "partial"}),
    (AvailabilitySpec, {"period": 2}, {"period": 1}),
    (AvailabilitySpec, {"partial": 1}, {"dropout": 1}),
    (Cohorts, {"stream": "numpy_legacy", "seed": 0}, {"stream": "numpy", "seed": 0}),
    (Seeds, {"demo": [0, 1]}, {"demo": [1, 1]}),
    (Seeds, {"compact": [0, 1]}, {"compact": [2, 1, 2]}),
    (Seeds, {"paper": [0, 1]}, {"paper": [0, 0]}),
    (Evaluate, {"clients": True, "every": 2}, {"clients": True, "every": 0}),
    (Seeds, {"paper": [2**32 - 1]}, {"paper": [2**32]}),
    (Setting, {**S, "lr_decay": 0.9}, {**S, "lr_decay": 0.9, "lr_schedule": [1.0]}),
    (Setting, {**S, "lr_schedule": [0.0]}, {**S, "lr_schedule": []}),
    (Setting, {**S, "lr_schedule": "cosine"}, {**S, "lr_schedule": "cosine", "lr_decay": 0.5}),
    (Setting, {**S, "decay_from": 1}, {**S, "lr_schedule": "cosine", "decay_from": 1}),
    (Setting, {**S, "lr_decay": {"factor": 0.5, "every": 1}},
     {**S, "lr_decay": {"factor": 0.5, "every": 0}}),
    (Setting, {**S, "participation": 1}, {**S, "participation": 1.01}),
    (Setting, {**S, "released": {"A1": {"rounds": 3}, "A2": {"model": "twonn"}}},
     {**S, "released": {"A1": {"rounds": 3}, "A2": {"rounds": 4}}}),
    (Setting, {**S, "class_weights": [1.0]}, {**S, "class_weights": [0.0]}),
    (Setting, S, {**S, "loss": "mine"}),
    (Searched, {"method": "a", "grid": {"x": [1], "y": [1]}},
     {"method": "a", "grid": {"x": [1]}, "keys": {"x": [1]}}),
    (Searched, {"method": "a", "keys": {"lr": [1]}}, {"method": "a"}),
    (Searched, {"method": "a", "grid": {"x": [1, 2]}}, {"method": "a", "grid": {"x": [1, 1]}}),
    (Searched, {"method": "a", "grid": {"x": [*range(1000)]}},
     {"method": "a", "grid": {"x": [*range(1001)]}}),
    (Search, search(PROX, {**PROX, "method": "ima+fedprox", "grid": {"fedprox.mu": [1]}}),
     search(PROX, PROX)),
    (Search, search(PROX, validation=0.99), search(PROX, validation=1)),
    (Search, search(PROX, metric={"of": "accuracy", "over_clients": "worst"}),
     search(PROX, metric={"of": "accuracy", "over_clients": "worst", "mix": "best"})),
    (HeatMap, panel(["a", "b"]), panel(["a"])),
    (HeatMap, panel(["a", "b"]), panel(["a", "b"], ["a", "b"])),
    (Planes, planes("planes", ["1", "2", "3"]), planes("planes", ["1", "2"])),
    (Planes, planes("segments", ["1", "2"]), planes("segments", ["1", "2", "3"])),
    (Planes, planes("segments", ["1", "2"], demo_through=["1", "3"]),
     planes("segments", ["1", "2"], demo_through=["1", "3", "2"])),
    (Trend, trend(["a", "b"], ["c", "d"]), trend(["a", "b"], ["c"])),
    (RoundsTo, {"rounds_to": 100}, {"rounds_to": 100.1}),
    (RoundsTo, {"rounds_to": 0.1}, {"rounds_to": 0}),
    (Table, {"title": "t", "rows": [ROW], "columns": [COLUMN]},
     {"title": "t", "rows": [ROW], "columns": []}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "taken", "refused"), PAIRS)
def test_each_limit_has_two_sides(
    model: type[BaseModel], taken: dict[str, Any], refused: dict[str, Any]
) -> None:
    validate(model, taken, "here")
    with pytest.raises(UserError, match=r"^here: .*(expected|given|each|unknown key)"):
        validate(model, refused, "here")


@pytest.mark.parametrize(
    ("keys", "loses"),
    [
        ({}, False), ({"dropout": 0.1}, True), ({"partial": 1.0}, False), ({"period": 4}, True),
        ({"deadline": 2}, True), ({"deadline": 2, "late": "partial"}, False),
        ({"deadline": 2, "late": "partial", "dropout": 0.2}, True),
    ],
)  # fmt: skip
def test_a_round_may_lack_an_update_if_clients_drop_out_sleep_or_are_dropped(
    keys: dict[str, Any], loses: bool
) -> None:
    assert AvailabilitySpec.model_validate(keys).loses is loses


def test_what_is_stated_nearer_comes_first() -> None:
    near, far = Resources(gpu=0, mem_mb=5), Resources(gpu=2, runtime=9, mem_mb=1)
    assert near.over(far) == Resources(gpu=0, mem_mb=5, runtime=9)
    assert Resources().over(far) == far and near.over(Resources()) == near


class OfAMetric(Typed):
    metric: Metric


@pytest.mark.parametrize(
    ("keys", "reaches", "of_a_run", "selects", "released"),
    [
        ("accuracy", 0, False, False, False),
        ({"rounds_to": 60}, 60, True, False, False),
        ({"rounds_to": 60, "mean_of": 2}, float("inf"), True, False, False),
        ({"megabytes_to": 70}, 70, True, False, False),
        ({"reached_in_steps_of": 5}, float("inf"), True, False, False),
        ({"least": "loss"}, 0, True, False, False),
        ({"of": "accuracy", "over_clients": "gini"}, 0, False, False, False),
        ({"of": "accuracy", "over_clients": "average", "mix": "best"}, 0, False, True, False),
        ({"of": "accuracy", "over_clients": "average", "mix": "own"}, 0, False, True, False),
        ({"of": "accuracy", "over_clients": "average", "mix": "released"}, 0, False, True, True),
    ],
)
def test_a_metric_says_what_it_needs_and_what_it_selects(
    keys: Any, reaches: float, of_a_run: bool, selects: bool, released: bool
) -> None:
    metric = OfAMetric.model_validate({"metric": keys}).metric
    assert metric.quantity.reaches == reaches and metric.quantity.of_a_run == of_a_run
    assert bool(metric.quantity.selection) == selects and metric.quantity.as_released == released
    assert metric.at_mix("fixed").quantity.selection == ""
    if isinstance(metric, OverClients):
        assert (metric.quantity.mixture != "") == selects
        assert metric.at_mix("best").mix == "best" and metric.at_mix(metric.mix) == metric


def test_a_speed_up_divides_rounds_and_rises() -> None:
    metric = RoundsTo(rounds_to=60, speed_up=True)
    plain = RoundsTo(rounds_to=60)
    assert metric.of_both == plain and plain.of_both is None
    assert (metric.quantity.higher_is_better, metric.quantity.unit) == (True, "")
    assert (plain.quantity.higher_is_better, plain.quantity.unit) == (False, "rounds")
    assert plain.curve.quantity.words == "accuracy"


def test_at_scale_demo_a_map_has_its_corners_each_once() -> None:
    narrow = HeatMap.model_validate(panel(["a", "b"])).at("demo")
    assert (narrow.x.values, narrow.y.values) == ([1, 2], [1])
    assert [each.methods for each in narrow.panels] == [[["a", "b"]]]
    axes = {axis: {"label": axis, "values": [1, 2, 3]} for axis in "xy"}
    wide = HeatMap.model_validate(
        {**panel(["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"]), **axes}
    )
    assert [each.methods for each in wide.at("demo").panels] == [[["a", "c"], ["g", "i"]]]
    assert wide.at("demo").x.values == [1, 3] and wide.at("paper") == wide
