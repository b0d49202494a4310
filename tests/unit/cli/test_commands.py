"""``commands.yaml`` describes commands that are there."""

import argparse
import inspect
import re
from collections.abc import Iterator

import pytest

from fedrepro.cli.main import parser
from fedrepro.support.commands import function
from fedrepro.support.papers import command_files


def _handlers() -> dict[str, str]:
    actions = [action for action in parser()._actions if action.dest == "command"]
    commands = dict(actions[0].choices or {})
    return {name: command.get_default("handler") for name, command in commands.items()}


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


def test_a_default_that_help_names_is_the_default() -> None:
    """A number or word; what is in words otherwise is found by the command."""
    named: dict[str, str] = {}
    for name, option in _options(parser()):
        told = re.search(r"default: (\w[\w.]*)\)?$", option.help or "")
        if told and option.default is not None and told[1] != "SUPPRESS":
            assert option.default == (option.type or str)(told[1]), name  # type: ignore[operator]
            named[name] = told[1]
        elif not option.choices and option.default not in (None, False, [], argparse.SUPPRESS):
            raise AssertionError(f"{name}: {option.default!r} is no default that its help names")
    assert named.items() >= {
        "landscape --points": "41", "landscape --samples": "2000", "clean --older": "30",
        "rank --search": "own", "partition --seed": "1",
    }.items()  # fmt: skip
    required = {name for name, option in _options(parser()) if option.required}
    assert {"run --seed", "quality --seed", "export --to"} <= {
        name.removeprefix("synth ") for name in required
    }
