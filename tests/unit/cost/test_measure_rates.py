"""Rates are measured through the engine itself, on random data."""

import sys
from dataclasses import replace

import pytest

from fedrepro.cost.rates import FOLDER, MethodRate, ModelRate, Rates
from fedrepro.models.pretrained import untrained
from fedrepro.models.registry import build
from fedrepro.support.plugins import NONE
from support import tiny_run
from support.places import ROOT
from support.refusals import refused

sys.path.insert(0, str(ROOT / "scripts"))
import measure_rates
from measure_rates import Subject

SMALL = Subject("logistic", (4,), "features", 3, 5)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_rates, "ENOUGH", 1e-3)
    monkeypatch.setattr(measure_rates, "REFERENCE", SMALL)


def test_models_and_methods_are_measured_in_a_process_of_their_own() -> None:
    wordy = Subject("stacked_lstm", (4,), "words", 9, 2, task="next_word")
    for subject in (SMALL, wordy):
        rate = measure_rates.in_a_process(subject, "cpu")
        assert isinstance(rate, ModelRate)
        assert 0 < rate.step_seconds < 1 and rate.memory_bytes > 2**26
    method = measure_rates.in_a_process(tiny_run.run_spec("superfed_mm"), "cpu")
    assert isinstance(method, MethodRate) and method.factor > 0
    unknown = Subject("next_char_lstm", (1, 2, 2), "bytes", 3, 2)
    assert "input" in str(measure_rates.in_a_process(unknown, "cpu"))  # takes no images


def test_every_shipped_training_has_a_rate_on_a_cpu() -> None:
    workloads, methods = measure_rates.subjects("cpu")
    rates = Rates.read("cpu")
    assert workloads.keys() <= rates.models.keys() and methods.keys() <= rates.methods.keys()


def test_a_model_that_starts_from_learned_weights_is_measured_without_them() -> None:
    images = Subject("efficientnet_b0", (3, 32, 32), "bytes", 8, 2)
    found = measure_rates.measure_model(images, "cpu", 1)
    assert found.step_seconds > 0 and found.parameters > 4_509_316  # buffers, too
    with refused("missing", key="weights.efficientnet_b0"):
        build("efficientnet_b0", (3, 32, 32), 8)
    with refused("value", key="input shape"), untrained():
        build("efficientnet_b0", (32,), 8)
    with refused("missing"):  # nor after what went wrong meanwhile
        build("efficientnet_b0", (3, 32, 32), 8)


def test_a_factor_is_by_fedavg_of_the_same_epochs() -> None:
    """FedAvg's own seconds are taken from those given, where they are known."""
    assert measure_rates.measure_method(tiny_run.run_spec(), "cpu", 1, {2: 1e6}).factor < 1e-3


@pytest.mark.parametrize(("method", "scaling"), [("fedcgan", "symmetric"), ("fedcvae", "unit")])
def test_what_trains_no_classifier_is_measured_itself(method: str, scaling: str) -> None:
    spec = tiny_run.run_spec(method, scaling=scaling)
    images = Subject(f"{method}_small", (1, 28, 28), "bytes", 10, 2)
    found = measure_rates.measure_model(replace(images, by=spec), "cpu", 1)
    assert 0 < found.step_seconds < 10 and found.parameters > 0
    assert found.sample_seconds == found.score_seconds == 0


def test_runs_that_differ_in_their_seed_are_one_workload() -> None:
    one, other = (replace(tiny_run.run_spec("fedcgan"), seed=seed) for seed in (1, 2))
    assert replace(SMALL, by=one) == replace(SMALL, by=other)
    assert len({replace(SMALL, by=one), replace(SMALL, by=other)}) == 1


@pytest.mark.parametrize("method", ["trimmed_mean+fedavg", "krum+fedavg", "multi_krum+fedavg"])
def test_rules_for_a_share_of_attackers_are_measured_with_two_clients(method: str) -> None:
    spec = tiny_run.run_spec(method, hyperparameters={method.partition("+")[0]: {"share": 0.4}})
    assert measure_rates.measure_method(spec, "cpu", 1, {2: 1.0}).factor > 0


def test_what_is_given_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Untrained networks and random samples, of the right shape."""
    images = Subject("logistic", (1, 28, 28), "bytes", 10, 2)
    monkeypatch.setattr(measure_rates, "REFERENCE", images)
    by = {name: tiny_run.run_spec(name, rounds=1) for name in ("generated", "discriminators")}
    critics = replace(
        images, model="discriminator_small", by=by["discriminators"], method="critics"
    )
    drawn = replace(images, model="wgan_gp_small", by=by["generated"], method="drawn")
    for subject in (critics, drawn):
        rate = measure_rates.measure_model(subject, "cpu", 1)
        assert rate.step_seconds + rate.client_seconds > 0
    for name in ("feddf", "fedgo"):
        assert measure_rates.measure_method(tiny_run.run_spec(name), "cpu", 1, {2: 1.0}).factor > 0


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
    assert Rates({}, 0, {small: rate}).of_model(large, NONE) == ModelRate(
        2.0, 0.5, 1.0, 0.125, 7, 4000
    )
    assert Rates({}, 0, {large: rate}).of_model(small, NONE) == ModelRate(
        0.5, 0.5, 0.0625, 0.125, 7, 1000
    )


@pytest.mark.parametrize(("device", "file"), [("cpu", "cpu.json"), ("cuda", "h100.json")])
def test_a_shipped_table_is_written_as_it_was_read(device: str, file: str) -> None:
    written = (FOLDER / file).read_text(encoding="utf-8")
    assert measure_rates.text_of(Rates.read(device)) == written
