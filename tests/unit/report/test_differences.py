"""How settings of scale compact differ from the papers': from both, and never by hand."""

import re
from pathlib import Path
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.report.cells.differences import Difference, grouped, of_claim, of_setting, unsearched
from fedrepro.report.papers import published
from support.places import ROOT
from support.refusals import refused
from support.scripts import script
from support.search_world import EXPERIMENT, FILE, settle

render = script("render_compact")

SETTING = EXPERIMENT["settings"]["s"]


def differing(root: Path, *methods: str, **keys: Any) -> dict[str, Difference]:
    small = {"extends": "s", "stands_for": "s", **keys}
    bench = load(settle(root, settings={"s": SETTING, "t": small}))
    return {each.key: each for each in of_setting(bench, "own/t", methods, 1) if not each.kept}


def test_a_setting_like_the_paper_s_differs_in_nothing(tmp_path: Path) -> None:
    assert differing(tmp_path, "fedavg", "fedprox") == {}


@pytest.mark.parametrize(
    ("keys", "key", "ratio"),
    [
        ({"optimizer": {"lr": 0.3}}, "learning rate", 3),
        ({"optimizer": {"lr": 0.1, "weight_decay": 0.5}}, "weight decay", None),
        ({"rounds": 8}, "rounds in which a client takes part", 4),
        ({"participation": 0.5}, "share of clients in a round", 0.5),
        ({"batch_size": 10}, "mini-batch", 0.5),
        ({"epochs": 3}, "local epochs", 3),
        ({"lr_decay": 0.5}, "learning rate at the end, by that at the start", 0.5),
        ({"noise": {"kind": "pair", "rate": 0.4}}, "label noise", None),
        ({"methods": {"fedprox": {"mu": 0.2}}}, "fedprox: mu", 2),
    ],
)
def test_a_changed_key_is_listed_with_its_ratio(
    tmp_path: Path, keys: dict[str, Any], key: str, ratio: float | None
) -> None:
    each = differing(tmp_path, "fedavg", "fedprox", **keys)[key]
    assert each.ratio == (None if ratio is None else pytest.approx(ratio))


def test_epochs_and_mini_batches_change_the_steps(tmp_path: Path) -> None:
    steps = differing(tmp_path, "fedavg", epochs=3)["local steps in a round"]
    assert steps.ratio == pytest.approx(3, rel=0.01)


def test_a_method_that_is_not_used_is_not_compared(tmp_path: Path) -> None:
    assert differing(tmp_path, "fedavg", methods={"fedprox": {"mu": 0.2}}) == {}


def test_equal_differences_stand_together() -> None:
    one, other = Difference("rounds", 10, 5), Difference("rounds", 10, 2)
    kept = Difference("mini-batch", 20, 20)
    rows = grouped({"a/x": [one, kept], "a/y": [other], "a/z": [one]})
    assert rows == [(one, ["x", "z"]), (other, ["y"])]


def test_what_a_setting_stands_for_is_a_setting(tmp_path: Path) -> None:
    with refused("value", file=str(FILE), key="settings.t.stands_for", value="r"):
        differing(tmp_path, stands_for="r")
    bench = load(settle(tmp_path))
    with refused("missing", file=str(FILE), key="settings.s.stands_for"):
        of_setting(bench, "own/s", [], 1)


def test_what_the_paper_tunes_and_no_search_has_is_said() -> None:
    bench = load(ROOT)

    def left(name: str) -> set[str]:
        return {*unsearched(bench, name, of_setting(bench, name, ["fedavg", "afl"], 1))}

    rate = {"optimizer.lr", "optimizer.weight_decay"}
    assert left("aaggff/compact-silos") == {*rate, "lr_decay", "afl.lr"}
    assert left("aaggff/compact-searched-silos") == {"lr_decay"}


def test_where_a_paper_prints_the_best_of_several_all_are_named() -> None:
    bench = load(ROOT)
    name = "ima/compact-searched-shards2"
    mine = {each.key: each for each in of_setting(bench, name, ["fedprox", "fedavg"], 1)}
    assert re.findall(r"[\d.]+", mine["fedprox: mu"].there) == ["0.1", "0.01", "0.001"]
    assert mine["fedprox: mu"].here == 0.001


def test_a_generator_s_steps_are_its_own_and_not_its_critic_s() -> None:
    bench = load(ROOT)
    mine = {each.key: each for each in of_setting(bench, "fedgo/compact-dir0.1", ["fedgo"], 1)}
    critic = mine["wgan_gp: critic_steps"]
    steps = mine["generator: steps in all"]
    assert (steps.here, critic.here) == (1008, 3)  # 3,024 of the critic
    assert steps.there == pytest.approx(100_000, rel=0.01)  # Appendix E.2
    untrained = of_setting(bench, "fedgo/compact-dir0.1-gan0", ["fedgo"], 1)
    steps = next(each for each in untrained if each.key == "generator: steps in all")
    assert (steps.there, steps.here) == (0, 0)


def test_who_judges_a_synthetic_set_is_compared() -> None:
    bench = load(ROOT)
    name = "fedevg/compact-searched-100-1.0"
    mine = {each.key: each for each in of_setting(bench, name, ["fedevg"], 1)}
    judges = {key: each.kept for key, each in mine.items() if key.startswith("judge")}
    assert len(judges) == 4 and not judges["judge of the synthetic set: network"]


def test_a_setting_that_a_search_selects_for_counts_as_searched() -> None:
    bench = load(ROOT)
    search = bench.experiments["fedevg"].compact_search["compact_fedcvae_100"]
    others = search.selects_for
    assert others
    for short in (search.setting, *others):
        name = f"fedevg/{short}"
        assert unsearched(bench, name, of_setting(bench, name, ["fedcvae"], 1)) == {}
        rate = bench.setting(name).optimizer.lr
        assert rate == bench.setting(f"fedevg/{search.setting}").optimizer.lr
    object.__setattr__(search, "selects_for", [])
    name = f"fedevg/{others[0]}"
    left = unsearched(bench, name, of_setting(bench, name, ["fedcvae"], 1))
    assert {*left} == {"fedcvae.optimizer.lr", "fedcvae.error"}


@pytest.mark.parametrize(
    ("claim", "there", "here"),
    [
        ("superfed-mm-label-skew", "", ""),
        ("superfed-mm-dirichlet", "top-5 accuracy", "accuracy"),
        ("aaggff-worst-cross-silo", "top-5 accuracy, worst", "accuracy, worst"),
        ("aaggff-plug-in-worst", "top-5 accuracy, worst", "accuracy, worst"),
        ("fedevg-fidelity", "Fréchet inception distance", "Fréchet distance"),
        ("fedgo-rounds", "rounds until the accuracy is 45", "rounds until the accuracy is 60"),
    ],
)
def test_a_claim_s_metric_is_compared_with_the_paper_s(claim: str, there: str, here: str) -> None:
    bench = load(ROOT)
    (judged,) = (each for each in published.load(ROOT).claims if each.anchor == claim)
    *_, last = (
        difference
        for differences in of_claim(bench, judged).values()
        for difference in differences
        if difference.key == "metric"
    )
    assert last.kept == (not there)
    if there:
        assert last.there.startswith(there)
        assert last.here.startswith(here)


@pytest.mark.parametrize(
    ("key", "value"),
    [("epoch", "epoch"), ("afll.lr", "afll"), ("afl.rate", "afl.rate"), ("afl", "afl")],
)
def test_what_the_paper_tunes_is_a_key_that_exists(tmp_path: Path, key: str, value: str) -> None:
    settle(tmp_path)
    compact = tmp_path / "config/compact/own.yaml"
    compact.parent.mkdir(parents=True, exist_ok=True)
    compact.write_text(f"tunes: {{ {key}: section 1 }}")
    with refused("value", file="config/compact/own.yaml", key="tunes", value=value):
        load(tmp_path)


def test_the_pages_are_those_of_the_settings() -> None:
    for path, text in render.render(ROOT).items():
        assert (ROOT / path).read_text("utf-8") == text, "python scripts/render_compact.py"
