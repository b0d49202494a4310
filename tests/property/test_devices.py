"""Every method on a device that is not there: no tensor is left on the CPU, no number changes."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn

from fedrepro.engine import tree
from fedrepro.engine.executors import Executor, eager, sequential
from fedrepro.engine.round import Federation
from fedrepro.run import runner, scoring
from support import tiny_run
from support.closeness import assert_close
from support.elsewhere import ELSEWHERE, Device, fetched, moved, sent, tensors_here
from support.on_device import all_of_it, compositions, on_device, two_rounds
from support.pretraining_worlds import WORLDS
from support.worlds import federation

SIDE_BY_SIDE = ("scaffold", "superfed_mm")  # what an executor does is the same for all


@pytest.mark.parametrize(
    ("name", "execute"),
    [(name, sequential) for name in sorted(compositions())] + [(x, eager) for x in SIDE_BY_SIDE],
)
def test_no_tensor_is_on_the_wrong_device(name: str, execute: Executor) -> None:
    def world() -> Federation:
        return federation(name, cohort=2, rounds=2, execute=execute)

    expected, their_states, model = two_rounds(world())
    with Device():
        found, client_states, our_model = two_rounds(on_device(world(), sent, moved))
        assert not tensors_here(tree.leaves(our_model))
        assert not tensors_here(tree.leaves(found["params"]))
        assert_close(tree.apply(fetched, found), expected, 0)
        assert_close(tree.apply(fetched, our_model), model, 0)
        assert_close(tree.apply(fetched, dict(client_states.known)), dict(their_states.known), 0)


@pytest.mark.parametrize("name", WORLDS)
def test_what_is_made_before_a_run_is_made_elsewhere(name: str) -> None:
    expected = all_of_it(WORLDS[name]())
    with Device():
        found = all_of_it(on_device(WORLDS[name](), sent, moved))
        assert not tensors_here(tree.leaves(found["product"]))
        # But for the last bit: there a layer of FedEvg's network is taken apart in another way.
        assert_close(tree.apply(fetched, found), expected, 1e-12)


@pytest.mark.parametrize("name", ["aaggff_s+fedavg", "apfl"])
def test_a_whole_run_leaves_the_same_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data, evaluation, checkpoints and the finished folder: what moves there and back."""
    monkeypatch.setattr(runner, "float32_by_default", nullcontext)  # in float64, which it refuses
    keys = {"participation": 1.0, "rounds": 3, "evaluate": {"clients": True}}
    tiny_run.carry_out(tmp_path / "here", tiny_run.run_spec(name, **keys))
    monkeypatch.setattr(nn.Module, "to", lambda module, device: moved(module))
    # Tensors of a subclass know no inference mode.
    for function, called in [*vars(scoring).items()]:
        if inner := getattr(called, "__wrapped__", None):
            monkeypatch.setattr(scoring, function, torch.no_grad()(inner))
    with Device():
        spec = tiny_run.run_spec(name, **keys, device=str(ELSEWHERE))
        tiny_run.carry_out(tmp_path / "there", spec)
    for file in ("model.safetensors", "rounds.parquet", "clients.parquet"):
        assert (tmp_path / "here" / file).read_bytes() == (tmp_path / "there" / file).read_bytes()


def test_the_device_refuses_what_a_gpu_refuses() -> None:
    here, there = torch.ones(2), sent(torch.ones(2))
    with Device():
        with pytest.raises(RuntimeError, match="elsewhere"):
            here + there
        with pytest.raises(RuntimeError, match="generator"):
            there.uniform_(generator=torch.Generator())
        made = torch.tensor([1.0, 2.0], device=there.device)
        assert (made * there * torch.tensor(2.0)).cpu().tolist() == [2.0, 4.0]
