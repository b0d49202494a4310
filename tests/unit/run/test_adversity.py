"""Attacks and availability as keys of a setting, in whole runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from fedrepro.engine.attacks import attackers
from fedrepro.run.assembly import make_plan
from fedrepro.run.scoring import participations
from fedrepro.run.state import first_state
from fedrepro.run.store import ClientStore
from fedrepro.support.errors import UserError
from support.killed import kill_after
from support.refusals import refused
from support.tiny_run import CLIENTS, carry_out, dataset, partition, run_spec

FLIPS = {"kind": "sign_flip", "share": 0.34, "scale": 3.0}
SLEEPY = {
    "dropout": 0.3, "partial": 0.5, "deadline": 1.5, "spread": 0.4, "late": "partial", "period": 4,
}  # fmt: skip
KEYS = [{"attack": FLIPS}, {"availability": SLEEPY}]
SAME = ("rounds.parquet", "clients.parquet", "model.safetensors", "manifest.json")


@pytest.mark.parametrize("key", KEYS, ids=lambda key: next(iter(key)))
def test_a_key_is_part_of_a_run_only_where_it_is_given(key: dict[str, Any]) -> None:
    (name,) = key
    without, of = run_spec(), run_spec(**key)
    assert name not in without.description()
    assert without.description() == {k: v for k, v in of.description().items() if k != name}
    assert without.digest != of.digest


@pytest.mark.parametrize("key", KEYS, ids=lambda key: next(iter(key)))
def test_killed_and_called_again_ends_with_the_same_bytes(
    tmp_path: Path, key: dict[str, Any]
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    spec = run_spec("scaffold+fedadam", **key)
    carry_out(whole, spec)
    kill_after(6, lambda report: carry_out(broken, spec, report))
    assert not broken.exists()
    carry_out(broken, spec)
    for file in SAME:
        assert (whole / file).read_bytes() == (broken / file).read_bytes(), file


@pytest.mark.parametrize("key", KEYS, ids=lambda key: next(iter(key)))
def test_processes_change_no_bit(tmp_path: Path, key: dict[str, Any]) -> None:
    for name, way in (("one", {}), ("two", {"executor": "parallel", "threads": 2})):
        carry_out(tmp_path / name, run_spec("pfedme", **key, **way))
    for file in SAME[:3]:
        one, two = ((tmp_path / name / file).read_bytes() for name in ("one", "two"))
        assert one == two, file


def test_two_of_six_clients_attack_and_labels_are_reversed_for_them_alone() -> None:
    spec = run_spec("median+fedavg", attack=FLIPS)
    plan, theirs = make_plan(spec, dataset(), partition()), attackers(1, CLIENTS, 0.34)
    assert plan.federation.attack and plan.federation.attack.clients == theirs  # type: ignore[attr-defined]
    assert len(theirs) == 2
    labels = run_spec(attack={"kind": "label_flip", "share": 0.34})
    plan = make_plan(labels, dataset(), partition())
    assert plan.federation.attack is None
    wrong = plan.federation.clients.samples.y.numpy() != dataset().train.y  # type: ignore[attr-defined]
    held = np.concatenate([partition().train[client] for client in sorted(theirs)])
    assert set(np.flatnonzero(wrong)) <= set(held) and wrong.any()
    clean = make_plan(run_spec(attack={"kind": "label_flip", "share": 0.0}), dataset(), partition())
    assert (clean.federation.clients.samples.y.numpy() == dataset().train.y).all()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["sign_flip", "label_flip"])
def test_a_share_of_attackers_that_is_nobody_is_refused(kind: str) -> None:
    for share in (0.0, 0.17):
        make_plan(run_spec(attack={"kind": kind, "share": share}), dataset(), partition())
    spec = run_spec(attack={"kind": kind, "share": 0.16})
    with refused("value", key="attack.share", value=0.16, names=("0", "0.1667", "6")):
        make_plan(spec, dataset(), partition())


def test_a_rule_s_share_is_of_the_cohort_that_the_setting_asks() -> None:
    """Four of six clients; the rule's default of a fifth is nobody."""
    for participation, nobody in ((0.67, True), (1.0, False)):
        spec = run_spec("trimmed_mean+fedavg", participation=participation)
        if not nobody:
            make_plan(spec, dataset(), partition())
            continue
        with pytest.raises(UserError, match=r"method trimmed_mean: share: .*: of 4 clients"):
            make_plan(spec, dataset(), partition())


def test_training_in_one_place_is_not_attacked_and_never_unavailable() -> None:
    for kind in ("label_flip", "sign_flip"):
        spec = run_spec("central", attack={"kind": kind, "share": 0.5}, availability=SLEEPY)
        plan = make_plan(spec, dataset(), partition())
        assert plan.federation.attack is None and plan.federation.availability is None
        assert (plan.federation.clients.samples.y.numpy() == dataset().train.y).all()  # type: ignore[attr-defined]


def test_a_run_counts_who_took_part_and_what_was_sent(tmp_path: Path) -> None:
    spec = run_spec(availability={"dropout": 0.5}, evaluate={"clients": True}, participation=1.0)
    carry_out(tmp_path / "run", spec)
    clients = pd.read_parquet(tmp_path / "run/clients.parquet")
    last = clients[clients["round"] == 12]["participations"].tolist()
    plan = make_plan(spec, dataset(), partition(True))
    state = first_state(plan, ClientStore(tmp_path / "states"))
    state.done = 12
    assert last == participations(plan.federation, state).tolist() and 12 < sum(last) < 60
    rounds = pd.read_parquet(tmp_path / "run/rounds.parquet")
    assert (rounds["bytes_up"] / rounds["bytes_down"] * 6).round(9).isin(range(1, 7)).all()
    assert rounds["bytes_up"].nunique() > 2 and rounds["bytes_down"].nunique() == 1
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["run"]["availability"]["dropout"] == 0.5
    for column in ("bytes_up", "bytes_down"):
        assert manifest[column] == rounds[column].sum()
    assert manifest["bytes_up"] < manifest["bytes_down"]


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ({"attack": {**FLIPS, "kind": "flip"}}, "'label_flip', 'sign_flip'"),
        ({"attack": {**FLIPS, "share": 1.0}}, r"share\s.*\b0 .*\b1\b"),
        ({"attack": {**FLIPS, "scale": 0}}, r"scale\s.*\b0\b"),
        ({"attack": {**FLIPS, "kind": "label_flip"}}, r"`scale`.*label_flip"),
        ({"availability": {"dropout": 1}}, r"dropout\s.*\b0 .*\b1\b"),
        ({"availability": {"partial": 1.5}}, r"partial\s.*\b0 .*\b1\b"),
        ({"availability": {"spread": 0.5}}, r"`spread`.*`late`.*`deadline`"),
        ({"availability": {"period": 1}}, r"period\s.*\b2\b"),
    ],
)
def test_bad_values_are_refused(key: dict[str, Any], line: str) -> None:
    with pytest.raises(ValidationError, match=line):
        run_spec(**key)


@pytest.mark.parametrize(
    "key", [{"dropout": 0.1}, {"deadline": 1.0}, {"period": 10}], ids=lambda key: next(iter(key))
)
def test_a_method_that_needs_all_clients_is_refused_where_some_may_be_missing(
    key: dict[str, float],
) -> None:
    def planned(**availability: Any) -> None:
        spec = run_spec("aaggff_s+fedavg", participation=1.0, availability=availability)
        make_plan(spec, dataset(), partition())

    with refused("value", file="method aaggff_s+fedavg", key="availability"):
        planned(**key)
    planned(partial=0.5)
    planned(deadline=1.0, late="partial")
