"""Landed runs that were made again: which differences are told, and which are expected."""

import re
from typing import Any, cast

import pytest
import torch

from fedrepro.run import manifest
from fedrepro.run.results import RunRecord
from fedrepro.run.run_comparison import SAME, Outcome, compare_landed

ROUNDS = {"round": [2, 4], "test_loss": [1.0, 0.5], "test_accuracy": [0.25, 0.5]}
CLIENTS = {"round": [4, 4], "client": [0, 1], "test_accuracy": [0.5, float("nan")]}


class Record:
    """As much of a run as is compared."""

    def __init__(self, rounds: Any = ROUNDS, clients: Any = CLIENTS, **changes: Any) -> None:
        self.rounds, self.clients = rounds, clients
        self.decisions = changes.pop("decisions", {})
        self.mixtures = changes.pop("mixtures", {})
        self.quality = {"numbers": changes.pop("quality", {})}
        self.state = changes.pop("state", "finished")
        here = {"hardware": manifest.hardware("cpu"), "packages": {"torch": torch.__version__}}
        here["packages"]["torch"] = torch.__version__.partition("+")[0]
        here["hardware"] |= changes
        self.manifest = here


def compared(landed: Any, made: Any) -> Outcome:
    same_kind = manifest.is_of_this_kind(landed.manifest)
    return compare_landed(cast(RunRecord, landed), cast(RunRecord, made), same_kind=same_kind)


def test_the_same_bits() -> None:
    """Rounds and columns that were not landed do not matter, nor does the order of clients."""
    rounds = {"round": [1, 2, 3, 4], "test_loss": [2.0, 1.0, 0.7, 0.5]}
    rounds |= {"test_accuracy": [0.1, 0.25, 0.3, 0.5], "learning_rate": [1, 1, 1, 1]}
    clients = {"round": [2, 4, 4], "client": [1, 1, 0], "test_accuracy": [0.1, float("nan"), 0.5]}
    assert compared(Record(), Record(rounds, clients)) == ("same bits", True)


@pytest.mark.parametrize(
    ("rounds", "clients", "words"),
    [
        (ROUNDS | {"test_loss": [1.0, 0.5000001]}, CLIENTS, r"1 of 6 .*\(test_loss\); .* 0\.00 "),
        (ROUNDS | {"test_accuracy": [0.27, 0.5]}, CLIENTS, r"1 of 6 .* 2\.00 "),
        (ROUNDS | {"test_accuracy": [0.26, 0.46]}, CLIENTS, r"2 of 6 .* 4\.00 "),
        (ROUNDS, CLIENTS | {"test_accuracy": [0.5, 0.0]}, r"1 of 6 .*\(test_accuracy\)"),
        (ROUNDS, CLIENTS | {"client": [0, 2]}, SAME),  # there was no number for client 1
        (ROUNDS, CLIENTS | {"client": [2, 1]}, r"1 of 6 "),
        ({**ROUNDS, "round": [2, 3]}, CLIENTS, r"2 of 6 "),
        ({"round": [2, 4], "test_loss": [1.0, 0.5]}, CLIENTS, r"2 of 6 .*\(test_accuracy\)"),
    ],
)
def test_what_differs(rounds: Any, clients: Any, words: str) -> None:
    """On the same kind of machine this must not be, on another one it may."""
    found = compared(Record(), Record(rounds, clients))
    assert re.match(words, found.words), found.words
    assert found.expected == (found.words == SAME)
    for key in ("machine", "processor", "vector_instructions"):
        elsewhere = compared(Record(**{key: "another"}), Record(rounds, clients))
        assert elsewhere.expected
        if not found.expected:
            assert "landed from another kind of machine" in elsewhere.words


MIXTURES = {"client": [0, 0], "weight": [0.0, 1.0], "accuracy": [0.5, 0.75]}
DECISIONS = {"round": [4, 4], "client": [0, 1], "weight": [0.25, 0.75]}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"mixtures": MIXTURES | {"accuracy": [0.5, 0.5]}}, r"1 of 12 .*\(accuracy\); .* 0\.00 "),
        ({"decisions": DECISIONS | {"weight": [0.75, 0.25]}}, r"2 of 12 .*\(weight\)"),
        ({"quality": {"accuracy": 0.7, "fid": None}}, r"1 of 12 .*\(quality acc.* 3\.00 "),
        ({"quality": {"accuracy": 0.73}}, SAME),  # no FID, as before
        ({"quality": {}}, r"1 of 12 .*\(quality accuracy\)"),
    ],
)
def test_all_that_was_landed_is_compared(made: dict[str, Any], words: str) -> None:
    quality = {"accuracy": 0.73, "fid": None}
    whole = {"mixtures": MIXTURES, "decisions": DECISIONS, "quality": quality}
    assert compared(Record(**whole), Record(**whole)).words == SAME
    found = compared(Record(**whole), Record(**(whole | made)))
    assert re.match(words, found.words), found.words


def test_another_pytorch_may_round_differently() -> None:
    landed = Record()
    landed.manifest["packages"]["torch"] = "1.0.0"
    assert not manifest.is_of_this_kind(landed.manifest)
    assert manifest.is_of_this_kind(Record().manifest)
    assert not manifest.is_of_this_kind({})
    here = Record().manifest
    on_gpu = {**here, "hardware": {**here["hardware"], "accelerator": "a GPU that nobody has"}}
    assert not manifest.is_of_this_kind(on_gpu)


def test_a_run_that_ends_otherwise_is_never_expected() -> None:
    found = compared(Record(processor="another"), Record(state="diverged"))
    assert found.words.startswith("diverged ") and not found.expected
