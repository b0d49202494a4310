"""A machine is measured once, through the engine itself."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedrepro.data.partition.schemes import Iid
from fedrepro.models.registry import build
from fedrepro.models.weights import untrained
from fedrepro.run import calibration
from fedrepro.run.calibration import LATER, calibrate, measure_method, start_seconds
from fedrepro.run.rates import MethodRate, ModelRate, Rates, Workload, key_of_method, stored
from fedrepro.support.errors import UserError
from support import tiny_run

SMALL = Workload("logistic", (4,), "features", 3, "classification", 5)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "ENOUGH", 1e-3)
    monkeypatch.setattr(calibration, "REFERENCE", SMALL)
    monkeypatch.setattr(calibration, "start_seconds", lambda: 2.0)


def test_what_was_measured_is_kept_and_not_measured_again(tmp_path: Path) -> None:
    rates, said = stored(tmp_path, "cpu", 1), list[str]()
    methods = {f"{name} epochs 2": tiny_run.run_spec(name) for name in ("central", "superfed_mm")}
    wordy = Workload("stacked_lstm", (4,), "words", 9, "next_word", 2)
    unknown = Workload("next_char_lstm", (1, 2, 2), "bytes", 3, "classification", 2)
    wanted = {each.key: each for each in (SMALL, wordy, unknown)}
    failed = calibrate(rates, wanted, methods, 100, said.append)
    assert failed.keys() == {unknown.key}  # takes no images
    assert rates.models[SMALL.key].parameters == 4 * 3 + 3
    assert all(0 < rate.step_seconds < 1 for rate in rates.models.values())
    assert all(rate.memory_bytes > 2**26 for rate in rates.models.values())
    central, mixed = (rates.methods[key] for key in methods)
    assert central.centralized and not mixed.centralized
    assert mixed.interpolates and not central.interpolates
    rates.save(tmp_path)
    again = stored(tmp_path, "cpu", 1)
    assert again == rates
    said.clear()
    calibrate(again, wanted, methods, 100, said.append)
    assert said == [unknown.key]
    assert stored(tmp_path, "cpu", 2).models == {}  # another way to compute


def test_nothing_is_begun_after_the_limit() -> None:
    rates = Rates({"device": "cpu", "threads": 1}, start_seconds=1.0)
    methods = {"fedavg": tiny_run.run_spec()}
    failed = calibrate(rates, {SMALL.key: SMALL}, methods, -1.0)
    assert failed == dict.fromkeys(("fedavg", SMALL.key), LATER)
    assert not rates.models and not rates.methods


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_partition_scheme_of_ones_own_is_no_obstacle(device: str) -> None:
    """Its class is none that another process could import; here a process only looks at a clock.

    Beside a GPU it is no fork.
    """

    class Mine(Iid):
        pass

    spec = tiny_run.run_spec()
    partition = Mine(scheme="iid", clients=3)
    run = replace(spec, setting=spec.setting.model_copy(update={"partition": partition}))
    late = ([("fedavg", run)], device, 1, 0.0)
    assert list(calibration._in_children([late], device, 1)) == [("fedavg", LATER)]


def test_one_of_each_kin_is_measured_first() -> None:
    """Of methods the one with the fewest epochs; those that are known are not measured again."""
    rates, said = Rates({"device": "cpu", "threads": 1}, start_seconds=1.0), list[str]()
    keys = ("fedavg epochs 9", "fedprox epochs 9", "fedprox@released epochs 2", "fedprox epochs 5")
    methods = {key: tiny_run.run_spec(key.split()[0], epochs=int(key[-1])) for key in keys}
    twins = [replace(SMALL, batch_size=size) for size in (5, 9)]
    workloads = {each.key: each for each in twins}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "usable_cores", lambda: 1)  # in order
        assert calibrate(rates, workloads, methods, 100, said.append) == {}
    assert said[:3] == [twins[0].key, keys[2], keys[0]]
    assert set(said[3:]) == {twins[1].key, keys[1], keys[3]}


def test_what_is_not_needed_for_a_whole_bill_is_not_begun_late() -> None:
    rates = Rates({"device": "cpu", "threads": 1}, start_seconds=1.0)
    workloads = {each.key: each for each in (SMALL, replace(SMALL, batch_size=9))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "EARLY", -1.0)
        failed = calibrate(rates, workloads, {"fedavg epochs 1": tiny_run.run_spec()}, 100)
    assert failed == {list(workloads)[1]: LATER}
    assert rates.models.keys() == {SMALL.key} and rates.methods


def test_a_model_that_starts_from_learned_weights_is_measured_without_them() -> None:
    images = Workload("efficientnet_b0", (3, 32, 32), "bytes", 8, "classification", 2)
    found = calibration.measure_model(images, "cpu", 1)
    assert found.step_seconds > 0 and found.parameters > 4_509_316  # buffers, too
    with pytest.raises(UserError, match="missing"):
        build("efficientnet_b0", (3, 32, 32), 8)
    with pytest.raises(UserError, match="input shape"), untrained():
        build("efficientnet_b0", (32,), 8)
    with pytest.raises(UserError, match="missing"):  # nor after what went wrong meanwhile
        build("efficientnet_b0", (3, 32, 32), 8)


def test_a_factor_is_by_fedavg_of_the_same_epochs() -> None:
    """FedAvg's own seconds are taken from those given, where they are known."""
    assert measure_method(tiny_run.run_spec(), "cpu", 1, {2: 1e6}).factor < 1e-3


@pytest.mark.parametrize(("method", "scaling"), [("fedcgan", "symmetric"), ("fedcvae", "unit")])
def test_what_trains_no_classifier_is_measured_itself(method: str, scaling: str) -> None:
    spec = tiny_run.run_spec(method, scaling=scaling)
    images = Workload(f"{method}_small", (1, 28, 28), "bytes", 10, "classification", 2)
    found = calibration.measure_model(replace(images, by=spec), "cpu", 1)
    assert 0 < found.step_seconds < 10 and found.parameters > 0
    assert found.sample_seconds == found.score_seconds == 0


def test_runs_that_differ_in_their_seed_are_one_workload() -> None:
    one, other = (replace(tiny_run.run_spec("fedcgan"), seed=seed) for seed in (1, 2))
    assert replace(SMALL, by=one) == replace(SMALL, by=other)
    assert len({replace(SMALL, by=one), replace(SMALL, by=other)}) == 1


def test_a_start_takes_what_its_process_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.run

    def run(command: list[str], check: bool) -> None:
        assert check and command[:2] == [sys.executable, "-c"] and "fedrepro.run" in command[2]
        real([sys.executable, "-S", "-c", "sum(range(10**6))"], check=True)  # not the seconds

    monkeypatch.setattr(subprocess, "run", run)
    assert 0 < start_seconds() < 5


@pytest.mark.parametrize("method", ["trimmed_mean+fedavg", "krum+fedavg", "multi_krum+fedavg"])
def test_rules_for_a_share_of_attackers_are_measured_with_two_clients(method: str) -> None:
    spec = tiny_run.run_spec(method, hyperparameters={method.partition("+")[0]: {"share": 0.4}})
    assert measure_method(spec, "cpu", 1, {2: 1.0}).factor > 0


def test_what_is_given_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Untrained networks and random samples, of the right shape."""
    rates = Rates({"device": "cpu", "threads": 1}, start_seconds=1.0)
    images = Workload("logistic", (1, 28, 28), "bytes", 10, "classification", 2)
    monkeypatch.setattr(calibration, "REFERENCE", images)
    by = {name: tiny_run.run_spec(name, rounds=1) for name in ("generated", "discriminators")}
    critics = replace(
        images, model="discriminator_small", by=by["discriminators"], method="critics"
    )
    drawn = replace(images, model="wgan_gp_small", by=by["generated"], method="drawn")
    workloads = {each.key: each for each in (critics, drawn)}
    methods = {name: tiny_run.run_spec(name) for name in ("feddf", "fedgo")}
    assert calibrate(rates, workloads, methods, 100) == {}
    assert all(rate.step_seconds + rate.client_seconds > 0 for rate in rates.models.values())
    assert set(rates.methods) == set(methods)


def test_kin_differ_in_mini_batch_classes_and_the_size_of_images_only() -> None:
    family = (replace(SMALL, batch_size=9), replace(SMALL, classes=4))
    others = (replace(SMALL, shape=(5,)), replace(SMALL, model="twonn"), replace(SMALL, method="x"))
    assert {each.family for each in family} == {SMALL.family}
    assert SMALL.family not in {each.family for each in others}
    image = replace(SMALL, shape=(1, 8, 8), numbers="bytes")
    assert replace(image, shape=(3, 32, 32)).family == image.family != SMALL.family


def test_images_of_four_times_the_pixels_take_four_times_as_long() -> None:
    small = replace(SMALL, shape=(1, 8, 8), numbers="bytes", batch_size=10)
    large = replace(small, shape=(3, 16, 16), batch_size=5)
    rate = ModelRate(1.0, 0.5, 0.25, 0.125, 7, 1000)
    assert large.from_family(small, rate) == ModelRate(2.0, 0.5, 1.0, 0.125, 7, 4000)
    assert small.from_family(large, rate) == ModelRate(0.5, 0.5, 0.0625, 0.125, 7, 1000)


def test_methods_share_what_does_not_change_their_work() -> None:
    mild, strong = (
        tiny_run.run_spec("fedprox", hyperparameters={"fedprox": {"mu": mu, "unused": True}})
        for mu in (0.1, 1.0)
    )
    assert key_of_method(mild) == key_of_method(strong) == "fedprox fedprox.unused=true epochs 2"


def test_the_method_most_alike_stands_in() -> None:
    keys = ("ditto epochs 1", "ditto@released epochs 5", "ditto epochs 9", "ima+ditto epochs 5")
    rates = Rates(
        {}, None, {}, {key: MethodRate(float(i), False, False) for i, key in enumerate(keys)}
    )

    def like(key: str) -> str | None:
        found = rates.method_like(key)
        return keys[int(found.factor)] if found else None

    assert like("ditto epochs 9") == "ditto epochs 9"
    assert like("ditto ditto.personal_epochs=2 epochs 4") == "ditto epochs 1"
    assert like("ditto epochs 6") == "ditto epochs 9"
    assert like("ditto@released epochs 9") == "ditto@released epochs 5"
    assert like("ima@released+ditto@released epochs 1") == "ima+ditto epochs 5"
    assert like("fedavg epochs 5") is None
