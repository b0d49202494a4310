"""The worked examples of docs/hooks.md: plug-in methods with a local loop of their own."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedrepro.check import suite, world
from fedrepro.check.suite import NotApplicable, Trial
from fedrepro.cli.check import trial_of
from fedrepro.methods.adaptive_weighting.simplex import minimise_quadratic
from fedrepro.run.store import load_tree
from fedrepro.support.plugins import Folders, import_file
from support import tiny_run
from support.places import ROOT

FOLDER = ROOT / "docs/examples/methods"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
FOLDERS = Folders(methods=FOLDER)


@cache
def trial(name: str) -> Trial:
    return trial_of(name, FOLDERS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", suite.ALL_OF.values(), ids=suite.ALL_OF)
def test_an_example_has_the_property(check: Callable[[Trial], None], name: str) -> None:
    with world.in_float64():
        try:
            check(trial(name))
        except NotApplicable as reason:
            pytest.skip(str(reason))


SMALL: dict[str, Any] = {"rounds": 3, "model": "twonn"}


def played(folder: Path, method: str, **changes: Any) -> pd.DataFrame:
    own = {key: changes.pop(key) for key in ("rate", "strength") if key in changes}
    clients = {"every": 1, "clients": True}
    spec = tiny_run.run_spec(
        method, hyperparameters={method: own}, plugins=FOLDERS, evaluate=clients, **SMALL
    )
    tiny_run.carry_out(folder, spec)
    return pd.read_parquet(folder / "rounds.parquet")


def test_fedala_without_learned_weights_sends_what_fedavg_sends(tmp_path: Path) -> None:
    for name, method, values in (("a", "fedala", {"rate": 0.0}), ("b", "fedavg", {}),
                                 ("c", "fedala", {"rate": 1.0})):  # fmt: skip
        played(tmp_path / name, method, **values)
    ours, fedavg, learned = (load_tree(tmp_path / x / "model.safetensors")[0] for x in "abc")
    torch.testing.assert_close(ours, fedavg)  # own + 1 (received - own) is received, but rounded
    assert not all(learned[name].allclose(leaf) for name, leaf in fedavg.items())


def test_fedproto_without_its_term_is_local_training(tmp_path: Path) -> None:
    columns = ["client_loss", "client_accuracy"]
    local = played(tmp_path / "local", "local")[columns]
    assert played(tmp_path / "a", "fedproto", strength=0.0)[columns].equals(local)
    pulled = played(tmp_path / "b", "fedproto", strength=0.5)[columns]
    assert pulled.iloc[0].equals(local.iloc[0]) and not pulled.equals(local)


@pytest.mark.parametrize("seed", range(5))
def test_fedpac_solves_its_programme(seed: int) -> None:
    fedpac = import_file("methods", FOLDER / "fedpac.py")
    drawn = np.random.default_rng(seed)
    own, theirs = drawn.normal(size=(3, 2)), drawn.normal(size=(6, 3, 2))
    variances, known = drawn.uniform(0.1, 1.0, 6), np.array([1.0, 1, 0, 1, 1, 1])
    given = (torch.from_numpy(each) for each in (own, theirs, variances, known))
    found = fedpac.collaboration(*given).numpy()
    biases = (theirs - own).reshape(6, -1)[known > 0]
    curvature = 2 * (biases @ biases.T + np.diag(variances[known > 0]))
    exact = minimise_quadratic(curvature, np.zeros(5))
    assert found[known == 0] == 0
    np.testing.assert_allclose(found[known > 0], exact, atol=1e-3)


def test_fedpac_takes_heads_of_clients_with_like_data_and_little_variance() -> None:
    fedpac = import_file("methods", FOLDER / "fedpac.py")
    same = torch.ones(3, 2, 2)
    weights = fedpac.collaboration(same[0], same, torch.tensor([1.0, 2.0, 4.0]), torch.ones(3))
    torch.testing.assert_close(weights, torch.tensor([4.0, 2.0, 1.0]) / 7, atol=1e-3, rtol=0)
    apart = torch.stack([same[0], same[0] * 9, same[0]])
    weights = fedpac.collaboration(same[0], apart, torch.full((3,), 0.1), torch.ones(3))
    assert weights[1] < 0.01
