"""What the command line gives reaches the function that it is for, in its place."""

import re
import shutil
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.cli import analysis, arguments, plan
from fedrepro.cli.main import main, parser
from fedrepro.config.workbench import Workbench
from support.places import ROOT
from support.refusals import refused


class Stopped(Exception):
    """What is asked for has been seen."""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    return tmp_path


RUN = ("ima/fmnist-shards2-demo", "ima+fedprox", "--seed", "7")


@pytest.mark.parametrize(
    ("arguments", "function", "expected"),
    [
        (
            ("landscape", *RUN, "--through", "1", "2", "--points", "5", "--samples", "9"),
            "fedrepro.cli.analysis.landscape_through",
            [["1", "2"], 5, 9, False],
        ),
        (
            ("landscape", *RUN),
            "fedrepro.cli.analysis.landscape_of",
            ["ima/fmnist-shards2-demo ima+fedprox 7"],
        ),
        (
            ("quality", *RUN),
            "fedrepro.cli.analysis.quality_of",
            ["ima/fmnist-shards2-demo ima+fedprox 7"],
        ),
        (
            ("table", "ima", "table_1", "--scale", "paper"),
            "fedrepro.report.cells.tables.write",
            ["ima table_1 paper"],
        ),
        (
            ("page", "ima", "table_1", "--scale", "paper"),
            "fedrepro.report.site.write_page",
            ["ima table_1 paper"],
        ),
        (("site", "--scale", "paper"), "fedrepro.report.site.write_site", ["paper"]),
        (("study", "fedgo_cost"), "fedrepro.cli.analysis.make", ["fedgo_cost"]),
        (
            ("plan", "ima/table_1", "superfed", "--scale", "paper"),
            "fedrepro.cli.plan.chosen",
            [["ima/table_1", "superfed"], "paper"],
        ),
        (("verify", "there", "--full"), "fedrepro.cli.verify.Check", ["there", True]),
        (("verify",), "fedrepro.cli.verify.Check", ["results", False]),
    ],
)
def test_each_argument_is_in_its_place(
    bench: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    function: str,
    expected: list[object],
) -> None:
    seen: list[object] = []

    def record(*given: Any, **named: Any) -> None:
        seen.extend(map(_plain, [*given, *named.values()]))
        raise Stopped

    monkeypatch.setattr("fedrepro.cli.analysis.open_kept", lambda *given: None)
    monkeypatch.setattr(function, record)
    monkeypatch.setattr("fedrepro.cli.report.Graph.definition_of", lambda *given: None)
    with suppress(Stopped):
        main([*arguments])
    assert [each for each in seen if each is not None] == expected


def _plain(value: Any) -> object:
    """What stands for a value below; None for what the command has not been given."""
    if isinstance(value, Workbench):
        return None
    if hasattr(value, "setting"):
        return f"{value.setting} {value.method} {value.seed}"
    if hasattr(value, "item"):
        return f"{value.system} {value.item} {value.scale}"
    if isinstance(value, Path):
        return None if value.suffix == ".partial" else str(value)
    if isinstance(value, list) and not all(isinstance(each, str) for each in value):
        return None
    return value if isinstance(value, str | int | list) else None


@pytest.mark.parametrize("faults", [[], ["one"], ["one", "two"]])
def test_verify_says_each_fault_and_its_status_is_1(
    bench: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    faults: list[str],
) -> None:
    def check(folder: Path, full: bool) -> SimpleNamespace:
        counts = {"runs": 3}
        return SimpleNamespace(
            results=folder, faults=lambda: iter(faults), counts=counts, unrecorded=[], unlisted=[]
        )

    monkeypatch.setattr("fedrepro.cli.verify.Check", check)
    assert main(["verify"]) == int(bool(faults))
    said = capsys.readouterr()
    assert said.out.split() == faults
    verdict = f"{len(faults)} wrong" if faults else "nothing is wrong"
    assert said.err == f"fedrepro: 3 runs: {verdict}\n"


def test_a_plan_names_the_most_frequent_reasons_first() -> None:
    found: dict[str, Any] = {
        "lines": [
            {"wall": 2.5, "done": 4, "unknown": 0, "hours": 5.0, "landed": 0.0, "predicted": 0.0}
        ],
        "jobs": {"run": 3, "prepare": 0},
        "at_once": 2,
        "without_hours": {f"reason {n}": n for n in range(1, plan.REASONS + 3)},
        "at_most": 0,
        "estimated_partitions": 0,
        "machine": {},
        "precisions": {"float32": 8, "tf32": 1, "bfloat16": 2},
    }
    most = plan.REASONS + 2
    lines = plan._remarks(found)
    assert lines[0].startswith("Jobs left: 3 run;")
    assert lines[1].startswith("On this machine, 2 at a time: 2.50 hours")
    found["lines"][-1]["wall"] = 0.05
    assert ", 2 at a time: 3.0 minutes, " in plan._remarks(found)[1]
    assert lines[2] == "Left out because they are finished: 4 runs."
    reasons = plan._unknown(found)
    assert reasons[0] == f"Hours unknown: {most} runs: reason {most}"
    assert reasons[-2] == "Hours unknown: 3 runs: reason 3"
    assert reasons[-1] == "Hours unknown: 3 more runs; --json lists all reasons."
    assert "5.0 are by runs that this machine has finished" in lines[-3]
    assert [line.split(",")[0] for line in lines[-2:]] == ["Trained in bfloat16", "Trained in tf32"]
    assert "float32: 2 runs" in lines[-2]
    assert lines[-1].endswith(" 1 run.")


@pytest.mark.parametrize("least", [1, 2])
def test_a_number_of_things_is_at_least_the_least(least: int) -> None:
    for value in (least, least + 1):
        arguments.require_at_least("--points", value, least)
    for value in (least - 1, -3):
        with refused(key="--points", value=value):
            arguments.require_at_least("--points", value, least)


@pytest.mark.parametrize(
    "words",
    [
        "landscape ima/a fedavg --seed 1 --through 1 2 --points 1",
        "landscape ima/a fedavg --seed 1 --through 1 2 --samples 0",
        "estimate ima --gpus 0",
    ],
)
def test_fewer_points_samples_or_gpus_than_any_are_refused(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """Before anything is looked for."""
    for module, name in ((analysis, "open_kept"), (plan, "load")):
        monkeypatch.setattr(module, name, None)
    run = SimpleNamespace(setting="ima/a", method="fedavg", seed=1)
    monkeypatch.setattr(analysis, "requested", lambda _: (None, run))
    monkeypatch.setattr(analysis.cards, "with_place", lambda bench: bench)
    assert main(words.split()) == 2


def test_gpus_are_for_a_device_that_has_them(bench: Path) -> None:
    """Which the configuration may say, too."""
    estimate = ["ima/table_1", "--gpus", "3", "--device"]
    for device, fault in (("cpu", True), ("cuda", False)):
        chosen = parser().parse_args(["estimate", *estimate, device, "--json"])
        if fault:
            with refused(key="--gpus", value=3, names="cuda"):
                plan.handle(chosen)
        else:
            plan.handle(chosen)


def test_models_of_files_have_names_of_their_own() -> None:
    """In the name of a landscape's file, by their paths."""
    paths = ["a/model.safetensors", "b/model.safetensors"]
    names = {analysis._short(path) for path in paths}
    assert len(names) == 2 and not any("/" in name or "safetensors" in name for name in names)
    assert [analysis._short(word) for word in ("last", "t0.5")] == ["last", "t0.5"]


def test_a_folder_that_is_made_meanwhile_stays_as_it_is(tmp_path: Path) -> None:
    """Whoever makes it, with or without its lock, and whatever is in it."""
    folder = tmp_path / "appendix"
    for theirs in ({}, {"runs.csv": "theirs"}):
        with refused(key="--to", value=str(folder)), arguments.new_folder("--to", folder) as made:
            (made / "runs.csv").write_text("ours")
            (made / "table.csv").write_text("ours")
            folder.mkdir()
            for name, text in theirs.items():
                (folder / name).write_text(text)
        assert {path.name: path.read_text() for path in folder.iterdir()} == theirs
        assert [*tmp_path.iterdir()] == [folder]
        shutil.rmtree(folder)
    with arguments.new_folder("--to", folder) as made:
        (made / "runs.csv").write_text("ours")
    assert (folder / "runs.csv").read_text() == "ours"


def test_every_command_that_refuses_a_folder_makes_it_so() -> None:
    """One that wrote in another way would replace a folder that is made while it computes."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    keys = [
        {*re.findall(rf"{each}\((\"[^\"]+\"), folder\)", text)}
        for text in texts
        for each in ("refuse_existing", "new_folder")
    ]
    asked = [(keys[at], keys[at + 1]) for at in range(0, len(keys), 2) if keys[at]]
    assert len(asked) > 3 and all(refused <= made for refused, made in asked)
