"""What short commands reckon and choose, by what goes in and comes out."""

import argparse
import itertools
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedrepro.cli import check_data, console, data, plan, ranking
from fedrepro.cli.main import main
from fedrepro.config.targets import RunKey
from fedrepro.data.readers.content import Content
from fedrepro.report.cells.league import League
from fedrepro.support.errors import UserError
from support.places import ROOT


# --- rank -----------------------------------------------------------------------------------------
def match_of(title: str, setting: str, judged: bool, seeds: int = 3) -> Any:
    return SimpleNamespace(
        title=title, setting=setting, judged=judged, seeds=tuple(range(1, seeds + 1)),
        method=lambda name: name, system="s", item="t",
    )  # fmt: skip


def request(matches: list[Any], searches: list[Any], seeds: int | None = None) -> ranking.Request:
    return ranking.Request(None, "mine", matches, {}, searches, "own", seeds, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
@pytest.mark.parametrize("seeds", [None, 2])
def test_runs_that_count_are_due_once_and_judged_if_any_match_asks(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...], seeds: int | None
) -> None:
    """In whatever order the matches come; rivals run where their search was."""
    asked: list[Any] = []
    there = RunKey("s/b", "rival", 2)

    def is_there(_: Any, run: RunKey, asks: bool = False) -> bool:
        asked.append((run, asks))
        return run == there

    monkeypatch.setattr(ranking, "is_there", is_there)
    matches = [match_of("a", "s/a", False), match_of("a judged", "s/a", True),
               match_of("b", "s/b", False)]  # fmt: skip
    trials = [
        SimpleNamespace(match=matches[2], method="rival", candidates=[1], runs=[there]),
        SimpleNamespace(match=matches[0], method="without", candidates=[], runs=[]),
    ]
    made = request([matches[place] for place in order], trials, seeds)
    count = seeds or 3
    wanted = {RunKey("s/a", "mine", seed): True for seed in range(1, count + 1)}
    wanted |= {RunKey("s/b", "best", seed): False for seed in range(1, count + 1)}
    wanted |= {RunKey("s/b", "rival", seed): False for seed in range(1, count + 1) if seed != 2}
    assert made.runs({("s/b", "mine"): ("s/b", "best")}) == wanted
    assert sorted(asks for run, asks in asked if run.setting == "s/a") == [True] * count
    assert made.candidates == {}
    run = RunKey("s/b", "rival", 9)
    for match in matches:
        later = SimpleNamespace(match=match, runs=[there, run])
        assert request(matches, [later]).candidates == {run: match.judged}


@pytest.mark.parametrize("seeds", [None, 0, 1, 3, 5, 6])
@pytest.mark.parametrize(("cores", "threads", "used"), [(None, 1, 6), (None, 4, 1), (None, 9, 1),
                                                        (2, 4, 2), (0, 1, None)])  # fmt: skip
def test_a_request_has_as_many_seeds_as_some_match_and_the_cores_that_there_are(
    monkeypatch: pytest.MonkeyPatch, seeds: int | None, cores: int | None, threads: int,
    used: int | None,
) -> None:  # fmt: skip
    bench = SimpleNamespace(config=SimpleNamespace(threads=threads))
    matches = [match_of("a", "s/a", False, 3), match_of("b", "s/b", False, 5)]
    monkeypatch.setattr(ranking, "load", lambda: bench)
    monkeypatch.setattr(ranking, "chosen_matches", lambda *_: matches)
    monkeypatch.setattr(ranking, "refuse_unknown", lambda *_: None)
    monkeypatch.setattr(ranking, "obstacle", lambda _, match, __: "no" * (match.title == "a"))
    monkeypatch.setattr(ranking, "usable_cores", lambda: 6)
    words = argparse.Namespace(
        method="m", on=None, seeds=seeds, cores=cores, grid=None, search="own"
    )
    if seeds in (0, 6) or cores == 0:
        with pytest.raises(UserError):
            ranking._requested(words)
        return
    made = ranking._requested(words)
    assert (made.cores, made.seeds, made.matches) == (used, seeds, matches[1:])
    assert made.unable == {"a": "no"}
    for search in ("each", "alike", "other"):
        with pytest.raises(UserError):
            ranking._requested(argparse.Namespace(**{**vars(words), "search": search}))


STATES = ["failed", "finished", "not run"]


@pytest.mark.parametrize("states", [*itertools.product(STATES, repeat=2)])
def test_a_match_is_one_that_it_cannot_play_only_if_all_its_runs_failed(
    monkeypatch: pytest.MonkeyPatch, states: tuple[str, ...]
) -> None:
    records = {seed: SimpleNamespace(state=state, why=f"failed: {seed}")
               for seed, state in enumerate(states, 1)}  # fmt: skip
    told: dict[str, Any] = {}
    monkeypatch.setattr(ranking, "read_run", lambda _, run: records[run.seed])
    monkeypatch.setattr(ranking, "published", SimpleNamespace(
        load=lambda _: SimpleNamespace(references=None)))  # fmt: skip
    monkeypatch.setattr(ranking.tables, "compute", lambda *_: None)
    nobody = League((), (), "")
    monkeypatch.setattr(ranking, "league_of", lambda *_, **named: told.update(named) or nobody)
    monkeypatch.setattr(ranking, "Renderer", lambda *_, **__: SimpleNamespace(
        write_assets=lambda: None))  # fmt: skip
    for name in ("write_league", "without_dead_links", "sync_disk"):
        monkeypatch.setattr(ranking, name, lambda *_: None)
    bench = SimpleNamespace(root=Path(), table=lambda *_: None)
    made = ranking.Request(bench, "mine", [match_of("a", "s/a", False, 2)], {"x": "y"}, [], "own",  # type: ignore[arg-type]
                           None, 1)  # fmt: skip
    gone = {"a": "1"} if set(states) == {"failed"} else {}
    assert ranking._league(made, {}, []).unable == {"x": "y", **gone}
    assert [match.title for match in told["matches"]] == [*({"a"} - gone.keys())]


# --- estimate -------------------------------------------------------------------------------------
def content_of(**total: Any) -> dict[str, Any]:
    line = {"predicted": 0.0, "landed": 0.0, "unknown": 0, "wall": 2.0, "hours": 9.0, "runs": 4,
            "done": 1} | total  # fmt: skip
    return {
        "lines": [line], "machine": {"accelerator": None, "processor": "CPU X"},
        "jobs": {"runs": 3, "none": 0}, "at_once": 2, "estimated_partitions": 0, "at_most": 0,
        "precisions": {"float32": 3}, "without_hours": {},
    }  # fmt: skip


@pytest.mark.parametrize("code", ["unwritable", "damaged"])
def test_an_estimate_that_cannot_be_saved_is_printed(
    code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in somebody else's workbench; a damaged file of estimates is to be deleted first."""

    def save(*given: object) -> None:
        raise UserError("results/calibration/runs.json: no", code=code, file="", key="")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(plan, "save_estimates", save)
    refused = code == "damaged"
    assert main(["estimate", "ima/table_1", "--json"]) == 2 * refused
    said = capsys.readouterr()
    assert "runs.json: no" in said.err and bool(said.out) != refused


@pytest.mark.parametrize(
    ("predicted", "landed", "named"), [(0.0, 0.0, False), (1.5, 0.0, True), (0.0, 2.0, True)]
)
def test_hours_are_split_by_where_they_are_from_and_name_the_machine_they_are_for(
    predicted: float, landed: float, named: bool
) -> None:
    lines = plan._remarks(content_of(predicted=predicted, landed=landed))
    (where,) = (line for line in lines if "at a time" in line)
    assert ("CPU X" in where) == named
    (split,) = (line for line in lines if line.startswith("Of these hours"))
    numbers = [float(word) for word in split.replace(",", "").split() if word[0].isdigit()]
    assert numbers[:3] == [9.0 - predicted - landed, landed, predicted]
    assert sum(numbers[:3]) == 9.0
    short = plan._remarks(content_of(hours=0.05))
    assert not any(line.startswith("Of these hours") for line in short)
    assert len(plan._remarks({**content_of(), "jobs": {"runs": 0}})) == 1


@pytest.mark.parametrize("count", [1, 8, 9, 20])
def test_the_reasons_of_most_runs_come_first_and_all_are_counted(count: int) -> None:
    numbers = [3 * number + 1 for number in range(count)]
    random.Random(count).shuffle(numbers)
    reasons = {f"why {number}": number for number in numbers}
    lines = plan._unknown({"without_hours": reasons})
    told = [int(line.split(":")[1].split()[0].replace(",", "")) for line in lines]
    assert told[: plan.REASONS] == sorted(numbers, reverse=True)[: plan.REASONS]
    assert sum(told) == sum(numbers) and len(lines) == min(count, plan.REASONS + 1)


# --- check-data and data --------------------------------------------------------------------------
def content(
    y: list[Any], names: list[str], clients: list[int] | None = None, **notes: Any
) -> Content:
    labels = np.array(y)
    train = SimpleNamespace(
        x=np.zeros((len(y), 2, 3)), y=labels, group=None if clients is None else np.array(clients)
    )
    test = SimpleNamespace(y=labels[:2])
    return SimpleNamespace(  # type: ignore[return-value]
        train=train, test=test, notes=notes, class_names=names, understood=[]
    )


def test_facts_count_each_class_client_and_sample() -> None:
    """A class or a client without training samples takes no other's name."""
    labels, groups = [0, 2, 2, 0, 2, 2, 4], [5, 1, 5, 5, 3, 5, 3]
    names = ["zero", "one", "two", "three", "four"]
    called = [f"c{number}" for number in range(7)]
    facts = dict(check_data._facts(content(labels, names, groups, groups=called)))
    assert facts["classes"].endswith(": zero (2), one (0), two (4), three (0), four (1)")
    assert facts["clients"].endswith(": c1 (1), c3 (2), c5 (4)") and "1 to 4" in facts["clients"]
    assert (facts["shape"], facts["training"]) == ("2x3", "7 samples")
    assert facts["test"].startswith("2 ")
    shown = [facts[f"sample {number}"] for number in range(1, 4)]
    assert shown == [names[label] for label in labels[:3]]
    plain = dict(check_data._facts(content(labels, names, groups)))
    assert plain["clients"].endswith(": 1 (1), 3 (2), 5 (4)")
    numbers = dict(check_data._facts(content([0.5, -1.25, 3.0, 3.0], ["y"])))
    assert "-1.25 to 3 " in numbers["targets"] and "sample 1" not in numbers
    words = dict(check_data._facts(content([[0, 1], [1, 1]], ["a", "b"])))
    assert words["classes"].endswith(": a (1), b (3)") and "sample 1" not in words


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("x.csv", "tabular_csv"), ("x.TSV", "tabular_csv"), ("x.jsonl", "text"),
        ("x.ndjson", "text"), ("x.npz", "arrays"), ("x.pq", "arrays"), ("x.zip", "image_folder"),
        ("images.npz", "synthetic"), ("x.docx", None),
    ],
)  # fmt: skip
def test_a_kind_is_guessed_by_the_name_and_a_label_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str | None
) -> None:
    path = tmp_path / name
    path.write_text("a,b,c\n1,2,3\n", encoding="utf-8")
    monkeypatch.setattr(check_data, "header_of", lambda _: ["first", "middle", "last"])
    if kind is None:
        with pytest.raises(UserError):
            check_data._guessed(path)
        return
    keys = check_data._guessed(path)
    assert keys["kind"] == kind
    assert keys.get("label") == {"tabular_csv": "last", "text": "label"}.get(kind)
    assert keys["path"] == str(tmp_path if kind == "synthetic" else path)
    (tmp_path / "folder").mkdir()
    assert check_data._guessed(tmp_path / "folder")["kind"] == "image_folder"


@pytest.mark.parametrize("test", [None, 30])
def test_the_state_of_a_data_set_has_the_sizes_of_its_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: int | None
) -> None:
    spec = SimpleNamespace(
        **dict.fromkeys(("kind", "title", "licence", "citation", "homepage"), "x")
    )
    splits = {"train": {"samples": 100}} | ({"test": {"samples": test}} if test else {})
    meta = {"splits": splits, "classes": 7, "input_shape": [3, 4], "content_sha256": "0"}
    monkeypatch.setattr(data, "read_meta", lambda _: meta)
    row = data._state("d", spec)
    assert (row["state"], row["train"], row["test"], row["classes"]) == (
        "prepared",
        100,
        test or 0,
        7,
    )
    assert data._shown(row["input_shape"]) == "3x4"
    monkeypatch.setattr(data, "read_meta", lambda _: None)
    assert data._state("d", spec)["state"] == "absent" and data._state("d", spec)["test"] is None

    def damaged(_: Path) -> None:
        raise UserError("damaged")

    monkeypatch.chdir(tmp_path)
    record = data.DOWNLOADS / "d" / data.RECORD
    record.parent.mkdir(parents=True)
    record.touch()
    assert data._state("d", spec)["state"] == "downloaded"
    assert data._state("e", spec)["state"] == "absent"
    monkeypatch.setattr(data, "read_meta", damaged)
    row = data._state("d", spec)
    assert (row["state"], row["train"], row["name"]) == ("damaged", None, "d")
    assert [data._shown(value) for value in (None, 1234, 0, [1, 28], "x")] == [
        "", "1,234", "0", "1x28", "x"
    ]  # fmt: skip


def test_test_samples_are_told_with_the_share_that_was_held_out() -> None:
    assert data.words_of_test({"test_fraction": 0.25}, 1500).startswith("1,500 ")
    assert "test_fraction 0.25 " in data.words_of_test({"test_fraction": 0.25}, 1500)
    assert "test_fraction" not in data.words_of_test({}, 1500)
    assert not any(each.isdigit() for each in data.words_of_test({"test_fraction": 0.25}, 0))


def test_a_partition_is_told_by_its_clients(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training and test samples of a client, its classes, and what nobody has."""
    counts = np.array([[5, 0, 0], [2, 3, 1], [0, 9, 2], [1, 0, 0]])
    tests = np.array([[1, 0, 0], [2, 0, 2], [0, 3, 4], [0, 1, 0]])
    dataset = SimpleNamespace(train=range(40), test=range(8), meta={})
    for held, fraction, words in ((tests, 0.25, "test_fraction 0.25"), (tests, 0, "given"),
                                  (None, 0, "8 that belong")):  # fmt: skip
        partition = SimpleNamespace(
            train_counts=counts, test_counts=held, samples=23 + 13 * (held is not None),
            save=lambda _: None, warning=lambda _: "",
        )  # fmt: skip
        setting = SimpleNamespace(
            dataset="d", partition=SimpleNamespace(test_fraction=fraction),
            partition_path=lambda _: Path("p"),
        )  # fmt: skip
        monkeypatch.setattr(data, "load", lambda at=setting: SimpleNamespace(
            setting=lambda _: at, plugins=None))  # fmt: skip
        monkeypatch.setattr(data, "refuse_damage", lambda _: None)
        monkeypatch.setattr(data, "open_dataset", lambda _: dataset)
        monkeypatch.setattr(data.inputs, "make_partition_of", lambda *_, made=partition: made)
        data._partition(argparse.Namespace(seed=1, setting="s"))
        first, second = capsys.readouterr().out.splitlines()
        assert "4 clients with 1 to 11 training samples of 1 to 3 classes" in first
        assert f"{4 if held is not None else 17} of 40 samples" in first
        assert words in second and (held is None or "1 to 7 of each" in second)


# --- the terminal ---------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(8))
def test_columns_share_the_width_and_none_is_wrapped_while_there_is_room(seed: int) -> None:
    """All that is spare goes to those that are wrapped, the narrowest first."""
    rnd = random.Random(seed)

    def cell() -> str:
        return " ".join("w" * rnd.randint(1, 9) for _ in range(rnd.randint(1, 6)))

    columns = [
        console.Column(f"head {at}", [cell() for _ in range(3)], whole=at == 0) for at in range(4)
    ]
    columns.append(console.Column("n", ["1,024", "> 3.5", "?"], whole=False))
    assert [column.is_number for column in columns] == [False] * 4 + [True]
    least, longest = sum(c.least for c in columns), sum(c.longest for c in columns)
    for width in range(least, longest + 20):
        widths = console._widths(columns, width, 2)
        if width < least + 8:
            assert widths == []
            continue
        assert sum(widths) + 8 <= width
        assert all(c.least <= wide for c, wide in zip(columns, widths, strict=True))
        wrapped = [w for c, w in zip(columns, widths, strict=True) if w < c.longest]
        assert not wrapped or sum(widths) + 8 == width
        grown = [w for c, w in zip(columns, widths, strict=True) if w > c.least]
        assert not wrapped or not grown or max(grown) <= min(wrapped) + 1
        assert all(w <= max(c.longest, c.least) for c, w in zip(columns, widths, strict=True))
    assert columns[0].least == max(map(len, [*columns[0].cells, "head"]))


def test_a_row_as_a_paragraph_is_one_line_where_it_fits() -> None:
    names, row = ["kind", "name", "more", "empty"], ["k", "title", "some words", ""]
    whole = "title  kind: k; more: some words"
    for width in (len(whole), len(whole) + 1):
        found = console._paragraph(names, row, 1, width)
        assert str(found) == whole
    group = console._paragraph(names, row, 1, len(whole) - 1)
    assert not hasattr(group, "plain")
