"""``commands.yaml`` describes commands that are there."""

import argparse
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedrepro.cli.main import _apply_rules, parser
from fedrepro.support.commands import function
from fedrepro.support.papers import command_files
from support.refusals import refused


def _commands(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = [action for action in top._actions if action.dest == "command"]
    return dict(actions[0].choices or {})  # type: ignore[call-overload]


def _handlers() -> dict[str, str]:
    return {name: each.get_default("handler") for name, each in _commands(parser()).items()}


@pytest.mark.parametrize(("command", "handler"), _handlers().items())
def test_the_handler_of_each_command_takes_its_arguments(command: str, handler: str | None) -> None:
    if handler is None:  # it has actions
        assert command == "synth"
        return
    assert list(inspect.signature(function(handler)).parameters) == ["arguments"]


def test_papers_bring_commands() -> None:
    assert {file.parent.name for file in command_files()} >= {"aaggff", "ima"}
    assert {"regret", "replay", "decompose"} <= set(_handlers())


def _options(top: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield from ((f"{name} {words}", option) for words, option in _options(command))
        elif action.option_strings:
            yield action.option_strings[-1], action


def _ruled(
    top: argparse.ArgumentParser,
) -> Iterator[tuple[str, argparse.Action, str, str, Any]]:
    """Commands and their arguments that have an effect with another option only, or without it."""
    for name, command in _commands(top).items():
        for action, rule, other, default in command.get_default("ruled") or ():
            yield name, action, rule, other, default


LINES = {
    "landscape": "landscape ima/a fedavg --seed 1",
    "replay": "replay term --losses a.csv",
    "verify": "verify",
}
VALUES = {"--points": "-5", "--samples": "2000", "--format": "csv"}


@pytest.mark.parametrize("command", LINES)
def test_an_argument_without_effect_is_refused(command: str) -> None:
    """Its default is filled in where it is not given."""
    top = parser()
    assert set(LINES) == {name for name, *_ in _ruled(top)}
    for _, action, rule, other, default in (each for each in _ruled(top) if each[0] == command):
        name = next(iter(action.option_strings), str(action.metavar))
        words = [*action.option_strings, *([] if action.nargs == 0 else [VALUES.get(name, "x")])]
        for beside in ([], [other, "x"]):
            line = [*LINES[command].split(), *beside]
            chosen = top.parse_args(line)
            _apply_rules(chosen)
            assert getattr(chosen, action.dest) == default
            given = top.parse_args([*line, *words])
            value = getattr(given, action.dest)
            if bool(beside) == (rule == "needs"):
                _apply_rules(given)
                assert getattr(given, action.dest) == value
            else:
                shown = str(value) if isinstance(value, Path) else value
                with refused(key=name, value=shown, names=other):
                    _apply_rules(given)


def test_a_default_that_help_names_is_the_default() -> None:
    """A number or word; what is in words otherwise is found by the command."""
    named: dict[str, str] = {}
    top = parser()
    filled = {action: default for _, action, _, _, default in _ruled(top)}
    for name, option in _options(top):
        told = re.search(r"default: (\w[\w.]*)\)?$", option.help or "")
        default = filled.get(option, option.default)
        if told and default is not None and told[1] != "SUPPRESS":
            assert default == (option.type or str)(told[1]), name  # type: ignore[operator]
            named[name] = told[1]
        elif not option.choices and default not in (None, False, [], argparse.SUPPRESS):
            raise AssertionError(f"{name}: {default!r} is no default that its help names")
    assert named.items() >= {
        "landscape --points": "41", "landscape --samples": "2000", "clean --older": "30",
        "rank --search": "own", "partition --seed": "1", "replay --format": "parquet",
    }.items()  # fmt: skip
    required = {name for name, option in _options(parser()) if option.required}
    assert {"run --seed", "quality --seed", "export --to"} <= {
        name.removeprefix("synth ") for name in required
    }
