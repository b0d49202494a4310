"""``commands.yaml`` describes commands that are there."""

import inspect

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
