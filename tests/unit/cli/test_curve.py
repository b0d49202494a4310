"""``fedrepro curve``: a run's rounds, drawn or as lines."""

import math
import re
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import fedrepro as fr
from fedrepro.cli import curve
from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.run.runner import Progress
from support.report_world import make_world
from support.tiny_run import carry_out, run_spec

RUN = RunKey("ima/fmnist-shards2-demo", "fedavg", 1)


def test_a_run_that_broke_off_has_its_rounds_so_far(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = load(make_world(tmp_path))

    def stop(progress: Progress) -> None:
        if progress.round > 5:
            raise StopIteration

    words = ["--root", str(tmp_path), "curve", RUN.setting, RUN.method, "--seed", "1"]
    assert main(words) == 2  # not begun
    assert "`fedrepro run" in capsys.readouterr().err
    assert main([*words[:4], "FedAvg", *words[5:]]) == 2  # no command could run it
    assert "`fedrepro run" not in capsys.readouterr().err
    with pytest.raises(StopIteration):
        carry_out(bench.root / RUN.folder, run_spec(checkpoint_every=2), stop)
    assert main(words) == 0
    said = capsys.readouterr()
    lines = [line.split("\t") for line in said.out.splitlines()]
    assert lines[0] == ["round", "test_accuracy"]
    assert [number for number, _ in lines[1:]] == ["1", "2", "3", "4"]
    assert all(0 <= float(value) <= 1 for _, value in lines[1:])
    assert "unfinished, 4 of" in said.err
    page = tmp_path / "curve.html"
    assert main([*words, "--page", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert main([*words, "--page", str(page)]) == 0  # its own page is written anew
    for name, content in (("mine.html", "<!doctype html><p>mine"), ("empty.yaml", "")):
        (tmp_path / name).write_text(content, encoding="utf-8")
        assert main([*words, "--page", str(tmp_path / name)]) == 2
        assert (tmp_path / name).read_text(encoding="utf-8") == content
    assert main([*words, "--page", ""]) == 2
    assert "unfinished, 4 of" in text and text.count("<svg") == 1
    cells = [re.findall("<td>(.*?)</td>", row) for row in text.split("<tr>")]
    place = re.findall("<th>(.*?)</th>", text).index("test_accuracy")
    shown = {row[0]: float(row[place]) for row in cells if row}
    assert shown == pytest.approx({name: float(value) for name, value in lines[1:]}, abs=1e-6)


def test_where_clients_are_scored_on_their_own_samples_their_mean_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `fedrepro run` reports it, and not that over all samples."""
    bench = load(make_world(tmp_path))
    seen: list[str] = []

    def stop(progress: Progress) -> None:
        if progress.round > 4:
            raise StopIteration
        seen.append(repr(progress.accuracy))

    with pytest.raises(StopIteration):
        carry_out(
            bench.root / RUN.folder, run_spec(checkpoint_every=2, evaluate={"clients": True}), stop
        )
    capsys.readouterr()
    words = ["--root", str(tmp_path), "curve", RUN.setting, RUN.method, "--seed", "1"]
    assert main(words) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines == [["round", "client_accuracy"], *([str(n), v] for n, v in enumerate(seen, 1))]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(words) == 0
    drawn = capsys.readouterr().out.splitlines()
    assert drawn[0].endswith(f", {float(seen[-1]):.4g} after round {len(seen)}")
    assert len(drawn) == 2 + curve.HEIGHT


def test_before_the_first_evaluated_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = load(make_world(tmp_path))

    def stop(progress: Progress) -> None:
        if progress.round > 2:
            raise StopIteration

    words = ["--root", str(tmp_path), "curve", RUN.setting, RUN.method, "--seed", "1"]
    spec = run_spec(checkpoint_every=2, evaluate={"every": 5})
    with pytest.raises(StopIteration):
        carry_out(bench.root / RUN.folder, spec, stop)
    for more in ([], ["--page", str(tmp_path / "curve.html")]):
        assert main([*words, *more]) == 2
        said = capsys.readouterr()
        assert "score" in said.err.splitlines()[-1]
        assert not said.out and not (tmp_path / "curve.html").exists()


def test_a_run_without_accuracy_draws_a_score_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of a pre-training run it was the learning rate."""
    rates = {"round": [1, 2], "learning_rate": [0.1, 0.1], "bytes_down": [9, 9], "bytes_up": [9, 9]}
    words = ["--root", str(make_world(tmp_path)), "curve", RUN.setting, RUN.method, "--seed", "1"]
    made = {"critic_loss": [math.nan, 3.0], "generator_loss": [1.0, 2.0]}
    for scores, column in ((made, "critic_loss"), ({}, None)):
        run = fr.Run(tmp_path, {"run": asdict(RUN)}, tables={"rounds.parquet": {**rates, **scores}})
        monkeypatch.setattr(fr, "load", lambda *_, made=run: made)
        assert main(words) == (0 if column else 2)
        said = capsys.readouterr()
        if column:
            assert said.out.splitlines()[0] == f"round\t{column}"
        else:
            assert "fedavg" in said.err and "score" in said.err


def test_a_curve_is_as_high_as_its_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = curve.plotted("accuracy", [10, 20, 30], [0.1, 0.9, 0.5])
    assert lines[0] == "accuracy, 0.5 after round 30"
    assert len(lines) == 2 + curve.HEIGHT
    assert (lines[1][:4], lines[-2][:4], lines[-1]) == ("0.9 ", "0.1 ", "    1" + " " * 27 + "30")
    columns = ["".join(line[4 + place] for line in lines[1:-1]) for place in range(30)]
    heights = [sum(mark != " " for mark in column) for column in columns]
    assert heights == [0] * 9 + [1] * 10 + [10] * 10 + [6]


@pytest.mark.parametrize("values", [[0.5, 0.5], [math.nan, math.inf]])
def test_flat_and_diverged_curves_are_drawn(values: list[float]) -> None:
    lines = curve.plotted("loss", [1, 2], values)
    assert len(lines) == 2 + curve.HEIGHT
    assert ("×" in lines[-2]) != math.isfinite(values[0])
