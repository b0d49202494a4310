"""The record of printed numbers and landed results: what is changed, dropped or added is named."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedrepro.cli.main import main
from fedrepro.config.targets import RunKey
from fedrepro.run import digests, landed_runs
from fedrepro.run.integrity import Check
from fedrepro.run.landed_runs import LandedRun
from fedrepro.run.results import reference_folder, timing_of
from fedrepro.support import checksummed_json
from fedrepro.support.checksummed_json import seal_of
from support.refusals import refused

PAPER = Path("reports/papers/mine")
SETTING = "mine/compact-x"
HEADER = "item,table,dataset,setting,method,metric,mean,std,doubt"
ROWS = [
    'table_1,I,A,"clients=4,alpha=0.1",FedAvg,acc,81.17,2.45,',
    'table_1,I,A,"clients=4,alpha=0.1",FedGO,acc,84.68,,"a note\nof two lines"',
    'table_1,I,B: b,"clients=4,alpha=0.1",FedAvg,acc,70.00,1.10,',
]
NOTES = 'item,note\ntable_1,"First."\ntable_1,"Second."\n'


def packed_run(run: RunKey, score: float) -> LandedRun:
    about = {"setting": run.setting, "method": run.method, "seed": run.seed, "rounds": 1}
    manifest = {"run": about, "rounds_done": 1, "status": "finished", "files": {}}
    manifest["seal"] = seal_of(manifest)
    tables = {"rounds.parquet": {"round": [1], "test_accuracy": [score]}}
    return LandedRun(manifest, {"cpu_seconds": 2.5}, {}, tables)


COMPACT = {
    RunKey(SETTING, method, seed): packed_run(RunKey(SETTING, method, seed), seed / 8)
    for method in ("fedavg", "fedgo")
    for seed in (1, 2)
}
REFERENCES = [RunKey("mine/large", "fedavg", seed) for seed in (0, 1)]


def write_reference(root: Path, run: RunKey, score: float = 0.5) -> None:
    folder = root / reference_folder(run)
    folder.mkdir(parents=True)
    about = {"setting": run.setting, "method": run.method, "seed": run.seed}
    manifest = {"run": about, "score": score, "files": {}}
    manifest["seal"] = seal_of(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    checksummed_json.write(folder / "timing.json", {"wall_seconds": 1}, timing_of(manifest))
    checksummed_json.write(folder / "quality.json", {"numbers": {}}, "quality")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    PAPER.mkdir(parents=True)
    Path("reports/papers/systems.yaml").write_text("- mine\n", encoding="utf-8")
    write_cells(ROWS)
    (PAPER / "notes.csv").write_text(NOTES, encoding="utf-8")
    landed_runs.write(Path(), SETTING, COMPACT)
    for run in REFERENCES:
        write_reference(Path(), run)
    replays = {"large/fedavg/seed0": {"agrees": True}, "large/fedavg/seed1": {"agrees": True}}
    (PAPER / "reference/replayed.json").write_text(json.dumps(replays), encoding="utf-8")
    digests.record_all(Path(), "mine")
    assert faults() == []
    return tmp_path


def write_cells(rows: list[str]) -> None:
    (PAPER / "cells.csv").write_text("\n".join([HEADER, *rows, ""]), encoding="utf-8")


def faults() -> list[str]:
    return list(digests.faults(Path(), "mine"))


def change_row() -> None:
    write_cells([ROWS[0], ROWS[1].replace("84.68", "84.86"), ROWS[2]])


def doubt_a_row() -> None:
    write_cells([ROWS[0] + "unsure", *ROWS[1:]])


def drop_row() -> None:
    write_cells([ROWS[0], ROWS[2]])


def double_row() -> None:
    write_cells([*ROWS, ROWS[0]])


def double_row_with_another_number() -> None:
    write_cells([*ROWS, ROWS[0].replace("81.17", "18.17")])


def add_row() -> None:
    write_cells([*ROWS, ROWS[0].replace("FedAvg", "FedProx")])


def drop_note() -> None:
    (PAPER / "notes.csv").write_text(NOTES.replace('table_1,"Second."\n', ""), encoding="utf-8")


def drop_run() -> None:
    landed_runs.write(Path(), SETTING, {run: COMPACT[run] for run in list(COMPACT)[1:]})


def change_run() -> None:
    run = RunKey(SETTING, "fedgo", 2)
    landed_runs.write(Path(), SETTING, COMPACT | {run: packed_run(run, 0.75)})


def add_run() -> None:
    run = RunKey(SETTING, "fedgo", 3)
    landed_runs.write(Path(), SETTING, COMPACT | {run: packed_run(run, 0.75)})


def delete_runs() -> None:
    (PAPER / "compact/compact-x/runs.parquet").unlink()


def delete_reference() -> None:
    shutil.rmtree(reference_folder(REFERENCES[1]))


def delete_references() -> None:
    shutil.rmtree(PAPER / "reference")


def replace_reference() -> None:
    shutil.rmtree(reference_folder(REFERENCES[0]))
    write_reference(Path(), REFERENCES[0], 0.75)


def add_reference() -> None:
    write_reference(Path(), RunKey("mine/large", "fedavg", 2))


def change_replay() -> None:
    file = PAPER / "reference/replayed.json"
    replays = json.loads(file.read_text(encoding="utf-8"))
    replays["large/fedavg/seed1"]["agrees"] = False
    file.write_text(json.dumps(replays), encoding="utf-8")


def damage_replays() -> None:
    (PAPER / "reference/replayed.json").write_text("{", encoding="utf-8")


def damage_record() -> None:
    file = PAPER / digests.FILE
    file.write_text(file.read_text(encoding="utf-8").replace("FedGO", "FedDF"), encoding="utf-8")


def damage_encoding() -> None:
    (PAPER / "cells.csv").write_bytes(HEADER.encode() + b"\nt\xff\n")


def add_cell() -> None:
    write_cells([ROWS[0] + ",more", *ROWS[1:]])


def judge_reference() -> None:
    folder = reference_folder(REFERENCES[1])
    checksummed_json.write(folder / "quality.json", {"numbers": {"fid": 1}}, "quality")


def add_file() -> None:
    (PAPER / "more.csv").write_text(NOTES, encoding="utf-8")


def drop_every_row() -> None:
    write_cells([])


def damage_quotes() -> None:
    write_cells([ROWS[0] + '"un"sure', *ROWS[1:]])


ROW = "table_1, I, A, clients=4,alpha=0.1"


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (change_row, [f"cells.csv: line 3: {ROW}, FedGO, acc: changed"]),
        (doubt_a_row, [f"cells.csv: line 2: {ROW}, FedAvg, acc: changed"]),
        (drop_row, [f"cells.csv: {ROW}, FedGO, acc: dropped"]),
        (double_row, [f"cells.csv: line 6: {ROW}, FedAvg, acc (2): added"]),
        (double_row_with_another_number, [f"cells.csv: line 6: {ROW}, FedAvg, acc (2): added"]),
        (add_row, [f"cells.csv: line 6: {ROW}, FedProx, acc: added"]),
        (drop_note, ["notes.csv: table_1 (2): dropped"]),
        (drop_run, ["compact/compact-x/runs.parquet: fedavg, seed 1: dropped"]),
        (change_run, ["compact/compact-x/runs.parquet: fedgo, seed 2: changed"]),
        (add_run, ["compact/compact-x/runs.parquet: fedgo, seed 3: added"]),
        (delete_runs, ["compact/compact-x/runs.parquet: missing: 4 rows"]),
        (delete_reference, ["reference/large: fedavg, seed 1: dropped"]),
        (
            delete_references,
            [
                "reference/large: missing: fedavg, seed 0; fedavg, seed 1",
                "reference/replayed.json: missing: large/fedavg, seed 0; large/fedavg, seed 1",
            ],
        ),
        (replace_reference, ["reference/large: fedavg, seed 0: changed"]),
        (add_cell, [f"cells.csv: line 2: {ROW}, FedAvg, acc: changed"]),
        (judge_reference, ["reference/large: fedavg, seed 1: changed"]),
        (add_file, ["more.csv: line 2: table_1: added", "more.csv: line 3: table_1 (2): added"]),
        (
            drop_every_row,
            [
                f"cells.csv: {ROW}, FedAvg, acc: dropped",
                f"cells.csv: {ROW}, FedGO, acc: dropped",
                "cells.csv: table_1, I, B: b, clients=4,alpha=0.1, FedAvg, acc: dropped",
            ],
        ),
        (damage_quotes, ["cells.csv: damaged"]),
        (add_reference, ["reference/large: fedavg, seed 2: added"]),
        (change_replay, ["reference/replayed.json: large/fedavg, seed 1: changed"]),
        (damage_replays, ["reference/replayed.json: damaged"]),
        (damage_record, ["landed.json: damaged"]),
        (damage_encoding, ["cells.csv: damaged"]),
    ],
)
def test_what_is_not_as_it_was_landed_is_named(
    damage: Callable[[], None],
    named: list[str],
    bench: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage()
    found = faults()
    assert len(found) == len(named)
    for line, start in zip(found, named, strict=True):
        assert line.startswith(f"{PAPER}/{start}")
    assert main(["verify"]) == 1  # without results, the papers of this workbench
    assert {*found} <= {*capsys.readouterr().out.splitlines()}


def test_the_order_of_rows_and_the_form_of_their_text_do_not_count(bench: Path) -> None:
    text = "\r\n".join([HEADER, "", *reversed(ROWS), ""]).replace("\nof", "\r\nof")
    (PAPER / "cells.csv").write_bytes(text.replace("\r\nof", "\nof").encode())
    assert faults() == []


def test_a_paper_without_a_record_is_said_to_be_unchecked(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (PAPER / digests.FILE).unlink()
    check = Check(Path("reports"))
    assert [fault for fault in check.faults() if "cells.csv" in fault] == []
    assert check.unrecorded == ["mine"]
    main(["verify"])
    assert re.search(r"landed\.json.*: mine\b", capsys.readouterr().err)


def test_a_paper_that_is_listed_and_gone_is_named(bench: Path) -> None:
    shutil.rmtree(PAPER)
    assert [fault.partition(":")[0] for fault in Check(Path("reports")).faults()] == [str(PAPER)]


def test_an_sdist_has_no_reference_results(bench: Path) -> None:
    Path("PKG-INFO").touch()
    delete_references()
    assert faults() == []
    drop_row()
    assert len(faults()) == 1


def test_a_copy_without_reference_results_is_recorded_without_them(bench: Path) -> None:
    delete_references()
    digests.forget_references(Path(), "mine")
    assert faults() == []
    delete_runs()
    assert len(faults()) == 1


def test_accepting_says_what_differs_and_records_it(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_row()
    before = faults()
    assert main(["verify", "--accept", "mine"]) == 0
    assert capsys.readouterr().out.splitlines()[: len(before)] == before
    assert faults() == []


def test_accepting_refuses_what_it_cannot_read(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = (PAPER / digests.FILE).read_bytes()
    damage_encoding()
    assert main(["verify", "--accept", "mine"]) == 2
    assert main(["verify", "--accept", "yours"]) == 2
    assert (PAPER / digests.FILE).read_bytes() == record
    assert "mine" in capsys.readouterr().err


def test_landing_runs_accepts_nothing_else(bench: Path) -> None:
    drop_row()
    new = {(run := RunKey(SETTING, "fedgo", seed)): packed_run(run, 0.75) for seed in (3, 4)}
    digests.record_runs(SETTING, {run: digests.digest_of(each) for run, each in new.items()})
    killed_here = faults()
    landed_runs.write(Path(), SETTING, COMPACT | new)
    assert killed_here == [
        f"{PAPER}/cells.csv: {ROW}, FedGO, acc: dropped",
        *(
            f"{PAPER}/compact/compact-x/runs.parquet: {run.method}, seed {run.seed}: dropped"
            for run in new
        ),
    ]
    assert faults() == killed_here[:1]


def test_landing_a_reference_result_or_a_replay_accepts_nothing_else(bench: Path) -> None:
    drop_row()
    dropped, run = faults(), RunKey("mine/large", "fedavg", 2)
    add_reference()
    folder = reference_folder(run)
    digests.record_reference(run, digests.digest_of_files({f.name: f for f in folder.iterdir()}))
    assert faults() == dropped
    change_replay()
    assert len(faults()) == len(dropped) + 1
    digests.record_replay(REFERENCES[1], {"agrees": False})
    assert faults() == dropped


def test_rows_are_recorded_in_groups_up_to_their_method(bench: Path) -> None:
    """As in records of before."""
    recorded = checksummed_json.parsed(PAPER / digests.FILE)
    assert {*recorded[f"cells.csv: {ROW}"]} == {"FedAvg, acc", "FedGO, acc"}
    assert {*recorded["notes.csv: "]} == {"table_1", "table_1 (2)"}


def test_a_paper_that_is_not_listed_is_checked_as_well(bench: Path) -> None:
    Path("reports/papers/systems.yaml").write_text("[]", encoding="utf-8")
    drop_row()
    assert [each for each in Check(Path("reports")).faults() if "cells.csv" in each] == []
    (PAPER / "paper.yaml").touch()
    assert len([each for each in Check(Path("reports")).faults() if "cells.csv" in each]) == 1


def test_the_first_landing_records_what_is_there(bench: Path) -> None:
    (PAPER / digests.FILE).unlink()
    run = RunKey(SETTING, "fedgo", 3)
    digests.record_runs(SETTING, {run: digests.digest_of(packed_run(run, 0.75))})
    add_run()
    assert faults() == []


def test_what_is_recorded_is_read_again_or_refused(bench: Path) -> None:
    damage_record()
    with refused("damaged", file="landed.json"):
        digests.record_runs(SETTING, {})
