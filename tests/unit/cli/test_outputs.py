"""No command writes over what it has not written, wherever the command line lets it write."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedrepro.cli.main import main, parser
from support.report_world import make_world

RUN = "ima/fmnist-shards2-demo fedavg --seed 1"
# For each path that a command writes to: a line that names it, and a file of the user's there.
WRITTEN = {
    "--log": ("--log mine.txt methods", "mine.txt"),
    "init folder": ("init mine", "mine/config.yaml"),
    "export --to": ("export ima table_1 --to mine", "mine/table_1.csv"),
    "synth export --to": (f"synth export {RUN} --to mine", "mine/images.npz"),
    "curve --page": (f"curve {RUN} --page mine.html", "mine.html"),
    "replay --out": (
        "replay aaggff_s --losses losses.csv --out mine --format csv",
        "mine/rounds.csv",
    ),
}
READ = {"--root", "verify folder", "replay --losses", "replay --participants", "replay --sizes"}


def _paths(top: argparse.ArgumentParser, words: str = "") -> Iterator[str]:
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield from _paths(command, f"{words}{name} ")
        elif action.type is Path:
            yield words + (action.option_strings or [action.dest])[-1]


def test_each_path_of_a_command_line_is_read_or_written() -> None:
    """One that is new comes into the table above."""
    assert set(_paths(parser())) == {*WRITTEN, *READ}


@pytest.mark.parametrize("path", WRITTEN)
def test_what_is_there_stays(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says so before it looks for a run, or computes."""
    monkeypatch.chdir(make_world(tmp_path))
    Path("losses.csv").write_text("a,b\n1,2\n3,4\n", encoding="utf-8")
    line, file = WRITTEN[path]
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text("mine", encoding="utf-8")
    before = {each: each.read_bytes() for each in Path().rglob("*") if each.is_file()}
    capsys.readouterr()
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and file.partition("/")[0] in said
    assert before == {each: each.read_bytes() for each in Path().rglob("*") if each.is_file()}
