"""Runs whose clients keep something: local models, mixtures of two, parts of a model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedrepro.config.run_spec import RunSpec
from fedrepro.measures import registry
from fedrepro.measures.base import Mix
from fedrepro.measures.clients import mixed
from support.refusals import Fault, refused
from support.tiny_run import CLIENTS, Stop, carry_out, run_spec, stop_after

FILES = ("rounds.parquet", "clients.parquet", "model.safetensors")


def personal(composition: str, **changes: Any) -> RunSpec:
    settings = {
        "evaluate": {"every": 4, "clients": True},
        "hyperparameters": {"superfed_lm": {"start": 0.25}, "ditto": {"personal_epochs": 2}},
        "model": "twonn",
        "participation": 0.34,
    }
    return run_spec(composition, **(settings | changes))


def broken_off(folder: Path, config: RunSpec, after: int) -> None:
    with pytest.raises(Stop):
        carry_out(folder, config, stop_after(after))


@pytest.mark.parametrize("composition", ["superfed_lm", "ima+ditto", "fedper", "apfl"])
def test_resuming_keeps_every_local_model(tmp_path: Path, composition: str) -> None:
    config = personal(composition)
    carry_out(tmp_path / "whole", config)
    broken_off(tmp_path / "broken", config, 7)
    assert list((tmp_path / "broken.partial").glob("*/clients/*.safetensors"))
    carry_out(tmp_path / "broken", config)
    mixes = composition in ("superfed_lm", "apfl")
    assert (tmp_path / "whole" / "mixtures.parquet").exists() == mixes
    for file in (*FILES, *(["mixtures.parquet"] if mixes else [])):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "broken" / file).read_bytes()


@pytest.mark.parametrize("composition", ["ditto", "fedrep"])
def test_defaults_of_epochs_fit_a_setting_with_fewer(tmp_path: Path, composition: str) -> None:
    """By default five of the client's own model, or all of the round's if there are fewer."""
    changes: dict[str, Any] = {
        "epochs": 2,
        "rounds": 1,
        "hyperparameters": {},
        "evaluate": {"clients": True},
    }
    carry_out(tmp_path / "own", personal(composition, **changes))
    key = "personal_epochs" if composition == "ditto" else "body_epochs"
    changes["hyperparameters"] = {composition: {key: 3}}
    with refused("value", key=key, value=3):
        carry_out(tmp_path / "more", personal(composition, **changes))


@pytest.mark.parametrize("composition", ["superfed_lm", "ima+fedper"])
def test_workers_leave_the_same_bytes(tmp_path: Path, composition: str) -> None:
    """Also where other numbers of them begin a run and go on with it."""
    carry_out(tmp_path / "one", personal(composition, executor="sequential"))
    broken_off(tmp_path / "many", personal(composition, executor="parallel", threads=3), 7)
    carry_out(tmp_path / "many", personal(composition, executor="parallel", threads=2))
    for file in (tmp_path / "one").iterdir():
        if file.name != "timing.json":
            assert file.read_bytes() == (tmp_path / "many" / file.name).read_bytes(), file.name
    timing = json.loads((tmp_path / "many" / "timing.json").read_text())
    assert timing["workers"] == 2 and timing["resumed"] == 1


def test_every_client_at_every_mixture(tmp_path: Path) -> None:
    carry_out(tmp_path / "x", personal("superfed_lm"))
    mixtures = pd.read_parquet(tmp_path / "x" / "mixtures.parquet")
    clients = pd.read_parquet(tmp_path / "x" / "clients.parquet")
    assert sorted(set(mixtures["weight"])) == [number / 10 for number in range(11)]
    assert len(mixtures) == CLIENTS * 11
    batched = {"accuracy_batch", "top5_batch", "ece_batch", "mce_batch"}
    assert {"top5", "ece", "mce"} | batched <= set(mixtures.columns)
    last = clients[clients["round"] == 12]
    middle = mixtures[mixtures["weight"] == 0.5]
    assert middle["accuracy"].tolist() == last["accuracy"].tolist()
    assert middle["loss"].tolist() == pytest.approx(last["loss"].tolist())


def test_a_client_that_never_took_part_is_counted_and_uses_the_shared_model(tmp_path: Path) -> None:
    config = personal("superfed_lm", rounds=2, participation=0.17)
    carry_out(tmp_path / "x", config)
    clients = pd.read_parquet(tmp_path / "x" / "clients.parquet")
    assert clients["participations"].sum() == 2  # one client in each of two rounds
    never = clients[clients["participations"] == 0]["client"]
    assert len(never) >= 4
    mixtures = pd.read_parquet(tmp_path / "x" / "mixtures.parquet")
    for client in never:
        assert mixtures[mixtures["client"] == client]["loss"].nunique() == 1


def test_local_training_is_scored_on_clients_only(tmp_path: Path) -> None:
    """The data set has a test set, but no model is shared that could be scored on it."""
    carry_out(tmp_path / "x", personal("local"))
    last = pd.read_parquet(tmp_path / "x" / "rounds.parquet").iloc[-1]
    clients = pd.read_parquet(tmp_path / "x" / "clients.parquet")
    clients = clients[clients["round"] == last["round"]]
    assert last["bytes_up"] == last["bytes_down"] == 0
    mean = np.average(clients["accuracy"], weights=clients["test_samples"])
    assert last["test_accuracy"] == pytest.approx(mean)
    assert last["client_accuracy"] == pytest.approx(clients["accuracy"].mean())


@pytest.mark.parametrize("composition", ["superfed_mm", "superfed_lm"])
def test_local_models_from_the_start_change_scores_of_clients_without_one(
    tmp_path: Path, composition: str
) -> None:
    """Thesis, section 3.3. Training stays the same to the bit; at lambda 0, scores do too."""
    mixtures = {}
    for own in (False, True):
        hyperparameters = {composition: {"start": 0.5, "local_from_start": own}}
        folder = tmp_path / str(own)
        carry_out(folder, personal(composition, rounds=2, hyperparameters=hyperparameters))
        mixtures[own] = pd.read_parquet(folder / "mixtures.parquet").groupby("client")["loss"]
    models = [tmp_path / str(own) / "model.safetensors" for own in (False, True)]
    assert models[0].read_bytes() == models[1].read_bytes()
    trained = [client for client, losses in mixtures[False] if losses.nunique() == 11]
    assert len(trained) == 2  # round 2 has two clients, and is the first with local models
    for client, losses in mixtures[True]:
        before = mixtures[False].get_group(client)
        assert losses.iloc[0] == before.iloc[0]
        if client in trained:
            assert losses.tolist() == before.tolist()
        else:
            assert losses.nunique() == 11 and before.nunique() == 1


def test_a_damaged_local_model_only_costs_time(tmp_path: Path) -> None:
    config = personal("superfed_lm")
    broken_off(tmp_path / "x", config, 7)
    (file, *_) = sorted((tmp_path / "x.partial").glob("*/clients/*.safetensors"))
    file.write_bytes(file.read_bytes()[:50])
    carry_out(tmp_path / "x", config)
    carry_out(tmp_path / "y", config)
    for name in FILES:
        assert (tmp_path / "x" / name).read_bytes() == (tmp_path / "y" / name).read_bytes()


@pytest.mark.parametrize(
    ("composition", "changes", "fault"),
    [
        ("fedrep", {"model": "logistic"}, {"names": ("body", "none")}),
        (
            "fedrep",
            {"hyperparameters": {"fedrep": {"body_epochs": 5}}},
            {"key": "body_epochs", "value": 5, "names": "2"},
        ),
        (
            "superfed_mm",
            {"hyperparameters": {"superfed_mm": {"start": 1.5}}},
            {"key": "start", "value": 1.5},
        ),
        ("apfl", {"hyperparameters": {"apfl": {"alpha": -0.1}}}, {"key": "alpha", "value": -0.1}),
        ("local", {"evaluate": {"every": 4}}, {"key": "evaluate.clients", "value": False}),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, composition: str, changes: dict[str, Any], fault: Fault
) -> None:
    with refused(**fault) as caught:
        carry_out(tmp_path / "x", personal(composition, **changes))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "x").exists()


# Three clients at the weights 0, 0.5 and 1; the third has no test samples.
MIXTURES = {
    "client": [0.0] * 3 + [1.0] * 3 + [2.0] * 3,
    "weight": [0.0, 0.5, 1.0] * 3,
    "test_samples": [10.0] * 3 + [5.0] * 3 + [0.0] * 3,
    "accuracy": [0.5, 0.6, 0.9, 0.8, 0.7, 0.1, np.nan, np.nan, np.nan],
    "ece": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, np.nan, np.nan, np.nan],
    "accuracy_batch": [0.95, 0.6, 0.9, 0.7, 0.75, 0.1, np.nan, np.nan, np.nan],
    "ece_batch": [0.3, 0.2, 0.9, 0.5, 0.6, 0.8, np.nan, np.nan, np.nan],
}


def at_mix(of: str, mix: Mix, columns: Mapping[str, list[float]] = MIXTURES) -> tuple[Any, Any]:
    return mixed(columns, of, registry.the(of, "client").guide, mix)


def test_the_best_common_mixture() -> None:
    accuracy, sizes = at_mix("accuracy", "best")
    np.testing.assert_array_equal(accuracy, [0.5, 0.8, np.nan])  # the least of equally good ones
    np.testing.assert_array_equal(sizes, [10, 5, 0])
    np.testing.assert_array_equal(at_mix("ece", "best")[0], [0.1, 0.4, np.nan])


def test_each_half_of_the_clients_has_the_mixture_that_is_best_for_the_other() -> None:
    """Of the first and third client at most one has samples, so that each half is one client."""
    accuracy, _ = at_mix("accuracy", "cross_fitted")
    first, second = (np.array(MIXTURES["accuracy"]).reshape(-1, 3)[place] for place in (0, 1))
    expected = [first[second.argmax()], second[first.argmax()], np.nan]
    np.testing.assert_array_equal(accuracy, expected)
    alone = {name: values[:3] for name, values in MIXTURES.items()}
    assert np.isnan(at_mix("accuracy", "cross_fitted", alone)[0]).all()  # nobody else chooses


def test_the_released_mixture() -> None:
    """Item 23: each client's best. Item 24: all else at the worst of what any client chose."""
    np.testing.assert_array_equal(at_mix("accuracy", "released")[0], [0.9, 0.8, np.nan])
    np.testing.assert_array_equal(at_mix("ece", "released")[0], [0.3, 0.6, np.nan])


def test_each_clients_own_mixture() -> None:
    np.testing.assert_array_equal(at_mix("accuracy", "own")[0], [0.9, 0.8, np.nan])
    np.testing.assert_array_equal(at_mix("ece", "own")[0], [0.3, 0.4, np.nan])


def test_who_has_no_test_samples_chooses_no_mixture() -> None:
    """The others choose 0.5 and 1, so that what is at 0 counts for nobody."""
    accuracy = [0.5, 0.6, 0.9, 0.1, 0.7, 0.2, *[np.nan] * 3]
    ece = [0.9, 0.2, 0.3, 0.8, 0.5, 0.6, *[np.nan] * 3]
    values = {**MIXTURES, "accuracy": accuracy, "ece": ece}
    np.testing.assert_array_equal(at_mix("ece", "released", values)[0], [0.3, 0.6, np.nan])


def test_what_is_counted_in_mini_batches_is_chosen_so() -> None:
    found = at_mix("accuracy_batch", "released")[0]
    np.testing.assert_array_equal(found, [0.95, 0.75, np.nan])
    # At the weights 0 and 0.5 that the clients chose, not at 1 and 0 as by plain accuracy.
    np.testing.assert_array_equal(at_mix("ece_batch", "released")[0], [0.3, 0.6, np.nan])
