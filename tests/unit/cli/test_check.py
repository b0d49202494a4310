"""``fedrepro check`` chooses compositions, prints its findings and returns a status."""

from argparse import Namespace
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedrepro.check import suite
from fedrepro.cli import check
from fedrepro.methods import registry
from fedrepro.support.errors import UserError


class World:
    """Stands in for the suite: two checks, and one of compositions; it counts what is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, str]] = []
        self.ends: dict[str, Exception] = {}
        monkeypatch.setattr(check, "trial_of", lambda name, _: SimpleNamespace(name=name))
        checks = {word: self.check(word) for word in ("first", "second")}
        monkeypatch.setattr(suite, "ALL_OF", checks)
        monkeypatch.setattr(suite, "composes", self.check("composed"))

    def check(self, word: str) -> Callable[[Any], None]:
        def checked(trial: Any) -> None:
            assert torch.get_default_dtype() is torch.float64
            self.asked.append((word, trial.name))
            if word in self.ends:
                raise self.ends[word]

        return checked


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.mark.parametrize(
    ("name", "checked", "others"),
    [
        ("fedprox", "fedprox", ["fedprox+fedadam", "ima+fedprox"]),
        ("ima", "ima", ["ima+fedadam"]),
        ("ima+fedprox", "ima+fedprox", ["ima+fedprox+fedadam"]),
        ("fedprox+fedadam", "fedprox+fedadam", ["ima+fedprox+fedadam"]),
        ("fedadam", "fedavg+fedadam", ["ima+fedavg+fedadam"]),
    ],
)
def test_a_composition_is_checked_alone_and_with_the_kinds_of_parts_that_it_lacks(
    world: World,
    capsys: pytest.CaptureFixture[str],
    name: str,
    checked: str,
    others: list[str],
) -> None:
    assert check.handle(Namespace(method=name)) == 0
    alone = [("first", checked), ("second", checked)]
    assert world.asked == [*alone, *(("composed", other) for other in others)]
    assert "failed" not in capsys.readouterr().out.lower()


@pytest.mark.parametrize("word", ["second", "composed"])
@pytest.mark.parametrize(
    "fault", [suite.Failed("it differs"), UserError("a mistake"), ZeroDivisionError("by zero")]
)
def test_each_fault_is_counted_and_one_is_enough(
    world: World, capsys: pytest.CaptureFixture[str], word: str, fault: Exception
) -> None:
    """Whatever it is, all other checks are made."""
    world.ends = {word: fault}
    assert check.handle(Namespace(method="fedprox")) == 1
    assert [known for known, _ in world.asked] == ["first", "second", "composed", "composed"]
    *lines, last = capsys.readouterr().out.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    assert len(failed) == (2 if word == "composed" else 1)
    assert all(str(fault) in line for line in failed)
    assert len([line for line in lines if line.startswith("passed")]) == 4 - len(failed)
    assert last.split() == ["fedprox:", str(len(failed)), "of", "4", "failed"]


def test_what_does_not_apply_is_no_fault(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.ends = {"first": suite.NotApplicable("no")}
    assert check.handle(Namespace(method="fedprox")) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:2]] == ["-", "passed"]


def test_hooks_that_break_their_contract_are_not_checked_further(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.ends = {"first": UserError("a mistake")}
    assert check.handle(Namespace(method="fedprox")) == 1
    assert [word for word, _ in world.asked] == ["first"]
    assert capsys.readouterr().out.startswith("FAILED")


@pytest.mark.parametrize("name", ["wgan_gp", "ima+wgan_gp"])
def test_what_trains_no_classifier_is_refused(world: World, name: str) -> None:
    with pytest.raises(UserError):
        check.handle(Namespace(method=name))
    assert not world.asked


@pytest.mark.parametrize(
    ("name", "single"),
    [
        ("fedprox", True),
        ("ima+fedavg", False),
        ("fedavg+fedadam", False),
        ("ditto@released", False),
    ],
)
def test_some_properties_are_those_of_a_method_alone(name: str, single: bool) -> None:
    trial = check.trial_of(name)
    assert trial.single is single
    ctx = trial.make().context
    assert bool(ctx.server_optimizer.init({"w": torch.ones(1)})) == ("fedadam" in name)
    assert ctx.server_lr == registry.compose(name)[1].lr
