"""FedGO's Byzantine clients: which they are, and that the setting's key alone makes them so."""

from dataclasses import replace

import pytest
import torch

from fedrepro.papers.fedgo.given_byzantine import Lying, with_liars
from fedrepro.run.networks import changed
from fedrepro.support.rng import stream
from support.refusals import refused
from support.tiny_run import run_spec
from support.worlds import federation


@pytest.mark.parametrize("seed", [1, 2])
def test_the_run_s_seed_draws_the_setting_s_number_of_liars(seed: int) -> None:
    given = federation("fedgo").context.artifacts
    found = changed(given, replace(run_spec("fedgo", byzantine=2), seed=seed), 6)
    theirs = found["discriminators"]
    drawn = torch.randperm(6, generator=stream(seed, "byzantine"))[:2]
    assert isinstance(theirs, Lying) and theirs.liars == set(drawn.tolist())
    assert theirs.tensors is given["discriminators"].tensors
    assert found["unlabelled"] is given["unlabelled"]


def test_a_liar_s_discriminator_outputs_1_and_the_others_theirs() -> None:
    given = federation("fedgo").context.artifacts
    theirs = with_liars(given["discriminators"], frozenset({1, 4}))
    x = given["unlabelled"].tensors["x"][:3]
    for client in range(6):
        outputs, honest = theirs.outputs(client, x), given["discriminators"].outputs(client, x)
        assert outputs.shape == honest.shape and not (honest == 1).all()
        assert torch.equal(outputs, torch.ones(()).expand(outputs.shape)) == (client in (1, 4))
        assert torch.equal(outputs, honest) == (client not in (1, 4))
    everyone = changed(given, run_spec("fedgo", byzantine=6), 6)["discriminators"]
    assert isinstance(everyone, Lying) and everyone.liars == {*range(6)}


def test_without_the_key_nothing_ischanged() -> None:
    given = federation("fedgo").context.artifacts
    assert changed(given, run_spec("fedgo"), 6) is given


def test_there_are_no_more_liars_than_clients() -> None:
    given = federation("fedgo").context.artifacts
    with refused(key="byzantine", value=7, names="6"):
        changed(given, run_spec("fedgo", byzantine=7), 6)
