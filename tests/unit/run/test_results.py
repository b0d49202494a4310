"""What became of runs, as their folders say."""

import math
import shutil
import socket
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from fedrepro.api.runs import load
from fedrepro.config.targets import RunKey
from fedrepro.run import results
from fedrepro.run.integrity import Check
from fedrepro.run.results import (
    LOGS,
    PAPERS,
    find_run,
    made_of,
    partial_of,
    read_any,
    read_run,
    reference_folder,
    reference_runs,
)
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError
from fedrepro.support.locks import exclusive_lock
from fedrepro.support.scoped_cache import read_once
from support.manifests import write_bare
from support.refusals import refused
from support.tiny_run import carry_out, run_spec


def test_committed_reference_results_are_found_as_such(tmp_path: Path) -> None:
    folder = PAPERS / "ima/reference/tiny/fedavg/seed3"
    made = write_bare(tmp_path, RunKey("ima/tiny", "fedavg", 3))
    for path in (folder, folder.with_name("seeds")):
        shutil.copytree(made, tmp_path / path)
    (found,) = reference_runs(tmp_path)
    assert (found.run.setting, found.run.method, found.run.seed) == ("ima/tiny", "fedavg", 3)
    assert (found.reference, found.folder, found.state) == (True, folder, "finished")


RUN = RunKey("test/blobs", "fedavg", 1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    carry_out(root / RUN.folder, run_spec(rounds=2))
    return root


def test_within_a_block_a_run_is_read_once(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(made, root)
    with read_once():
        first = read_run(root, RUN)
        shutil.rmtree(root / RUN.folder)
        with read_once():  # as a page within a site
            assert read_run(root, RUN) is first and first.state == "finished"
        assert read_run(root, RUN) is first
        assert read_run(root, RUN, reference=True).state == "not run"
    assert read_run(root, RUN).state == "not run"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", b"{}"),
        ("manifest.json", b"[]"),
        ("manifest.json", b'{"run": {}, "files": []}'),
        ("manifest.json", b'{"run": 3, "files": {}}'),
        ("manifest.json", b"\xff\xfe"),
        ("manifest.json", b"[" * 100_000),
        ("manifest.json", None),
        ("timing.json", b'{"wall_seconds": "a while"}'),
        ("timing.json", b"[]"),
        ("timing.json", None),
    ],
)
def test_a_file_of_another_form_is_damage(
    made: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    """For the report, for verify and for the API; None: a folder, which cannot be read.

    Numbers do not depend on timing.json: a run without a sound one has them, but no times.
    """
    root = tmp_path / "copy"
    shutil.copytree(made, root)
    file = root / RUN.folder / name
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    record = read_run(root, RUN)
    (fault,) = Check(root / "results").faults()
    assert fault.startswith(f"{file}: damaged: ") or fault.startswith(f"{file.parent}: damaged: ")
    assert "\n" not in fault
    if name == "timing.json":
        assert record.state == "finished" and record.rounds and record.timing == {}
    else:
        assert record.state == "damaged" and not record.manifest
        assert record.why.startswith(f"{RUN.folder}/{name}: ") and "\n" not in record.why
        assert str(tmp_path) not in record.why
        with pytest.raises(UserError, match=r"manifest\.json: "):
            load(root / RUN.folder)


@pytest.mark.parametrize("name", ["rounds.parquet", "clients.parquet", "model.safetensors"])
def test_tables_are_compared_with_their_hashes_and_models_are_not(
    made: Path, tmp_path: Path, name: str
) -> None:
    """Which no table needs; who is given a model compares it."""
    shutil.copytree(made, tmp_path / "copy")
    (tmp_path / "copy" / RUN.folder / name).write_bytes(b"edited")
    record = read_run(tmp_path / "copy", RUN)
    assert record.state == ("finished" if name == "model.safetensors" else "damaged")
    assert bool(record.rounds) == bool(record.clients) == (record.state == "finished")


@pytest.mark.parametrize("changes", [{"seed": 2}, {"method": "fedprox"}, {"setting": "test/other"}])
def test_a_result_in_the_folder_of_another_run_is_damage(
    made: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    other = replace(RUN, **changes)
    shutil.copytree(made / RUN.folder, tmp_path / other.folder)
    assert read_run(tmp_path, other).state == "damaged"
    record = read_any(tmp_path, other.folder)  # a folder that need not say which run it is of
    assert (record.state, record.run) == ("finished", RUN)


def test_kept_checkpoints_without_a_list_of_files_are_damage(tmp_path: Path) -> None:
    about = tmp_path / "results/trunks/test/blobs/fedavg/seed1/round3/about.json"
    about.parent.mkdir(parents=True)
    about.write_text('{"files": []}', encoding="utf-8")
    (fault,) = Check(tmp_path / "results").faults()
    assert fault.startswith(f"{about}: damaged: ") and "checksum" in fault
    checksummed_json.write(about, {"files": []}, "trunks/test/blobs/fedavg/seed1/round3/about")
    (fault,) = Check(tmp_path / "results").faults()
    assert fault.startswith(f"{about.parent}: damaged: files: ")


def test_why_a_run_failed_names_no_path_and_no_machine(tmp_path: Path) -> None:
    log = tmp_path / LOGS / RUN.setting / RUN.method / "seed1.log"
    log.parent.mkdir(parents=True)
    host = socket.gethostname()
    log.write_text(
        f"fedrepro: {tmp_path}/results/data/x: lost the lock to process 7 on node-3; see "
        f"/home/somebody/x on {host}: \x1b[31mred\n",
        encoding="utf-8",
    )
    why = read_run(tmp_path, RUN).why
    assert "./results/data/x: " in why and " 7 on " in why and "; see … on " in why
    assert why.endswith(": \\x1b[31mred")
    assert not any(name in why for name in (f" {host}", "node-3", str(tmp_path), "somebody"))


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("fedrepro: first\nfedrepro: second\n", "second"),
        ("fedrepro: first\nround 1\nFatal Python error: Aborted\n\nThread 0x1:\n", "Aborted"),
        ("Fatal Python error: Aborted\nfedrepro: second\nround 2\n", "second"),
        ("round 1\nfedrepro said nothing\n", "word"),
        ("a: done, in b\na: round 1 of 2\n", "word"),  # killed, after an earlier end
        ("a: done, in b\nfedrepro: second\n", "second"),
    ],
)
def test_a_run_failed_for_the_last_reason_in_its_log(tmp_path: Path, log: str, why: str) -> None:
    """A log of a run that failed, was begun anew and failed again has both."""
    path = tmp_path / LOGS / RUN.setting / RUN.method / "seed1.log"
    path.parent.mkdir(parents=True)
    path.write_text(log, encoding="utf-8")
    status = read_run(tmp_path, RUN)
    assert status.state == "failed" and why in status.why and "first" not in status.why


def test_a_result_that_was_deleted_has_not_failed(tmp_path: Path) -> None:
    path = tmp_path / LOGS / RUN.setting / RUN.method / "seed1.log"
    path.parent.mkdir(parents=True)
    path.write_text("fedrepro: first\na: round 2 of 2\na: done, in b\na table's word\n")
    assert read_run(tmp_path, RUN).state == "not run"


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "known"),
        ({"numbers": {}}, "known"),
        ({"of": {RUN.name: "another"}}, "none"),  # of the result that was there before
        ({"of": {"test/blobs/fedprox/seed1": "its own"}}, "none"),
        ({"numbers": {"accuracy": "high"}}, "damaged"),
        ({"numbers": {"accuracy": 0.5, "fid": True}}, "damaged"),
        ({"numbers": [0.5]}, "damaged"),
        ({"classes": 0}, "damaged"),
        ({"classes": 2.5}, "damaged"),
    ],
)
def test_the_quality_of_a_set_is_of_this_very_result(
    tmp_path: Path, changes: dict[str, Any], state: str, reference: bool
) -> None:
    """Beside a reference result, and among the analyses for one of this machine."""
    folder, what = write_bare(tmp_path, RUN), RUN.analysis("quality")
    file = tmp_path / what
    if reference:
        place = tmp_path / reference_folder(RUN)
        place.parent.mkdir(parents=True)
        folder.rename(place)
        file = place / "quality.json"
    record = read_run(tmp_path, RUN, reference)
    assert record.quality == {}
    content = {"of": made_of([record]), "numbers": {"accuracy": 0.5, "fid": None}, "classes": 3}
    file.parent.mkdir(parents=True, exist_ok=True)
    checksummed_json.write(file, content | changes, checksummed_json.of_results(what))
    record = read_run(tmp_path, RUN, reference)
    if state == "damaged":
        with refused("damaged", names="expected"):
            record.quality  # noqa: B018
    else:
        assert bool(record.quality) == (state == "known")
        assert state == "none" or (content | changes).items() <= record.quality.items()


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    ("begun", "state"), [("", "failed"), ("left", "failed"), ("locked", "under way")]
)
def test_a_run_without_a_result_was_begun_or_failed_or_neither(
    tmp_path: Path, begun: str, log: bool, state: str
) -> None:
    place = tmp_path / LOGS / RUN.setting / RUN.method / "seed1.log"
    if log:
        place.parent.mkdir(parents=True)
        place.write_text("fedrepro: no memory\n", encoding="utf-8")
    partial = partial_of(tmp_path / RUN.folder)
    with ExitStack() as held:
        if begun == "locked":
            held.enter_context(exclusive_lock(partial))
        if begun:
            partial.mkdir(parents=True, exist_ok=True)
        record = find_run(tmp_path, RUN)
        state = state if begun or log else "not run"
        assert (record.state, read_run(tmp_path, RUN).state) == (state, state)
        assert ("memory" in record.why) == (log and state == "failed")
        assert read_run(tmp_path, RUN, reference=True).state == "not run"
        folder = reference_folder(RUN)
        (tmp_path / folder).parent.mkdir(parents=True)
        shutil.move(write_bare(tmp_path, RUN), tmp_path / folder)
        assert find_run(tmp_path, RUN).folder == folder


def test_numbers_of_a_column_are_those_of_all_its_parts() -> None:
    """Which begin somewhere in a larger block of memory."""
    for kind, values in (
        (pyarrow.float64(), [0.5, 1, 2, 3, 4]),
        (pyarrow.int64(), [5, 6, 7, 8, 9]),
    ):
        whole = pyarrow.array(values, kind)
        parts = [whole[:2], whole[3:], whole[2:3]]
        found = results._numbers_in(pyarrow.chunked_array(parts))
        assert found == [*values[:2], *values[3:], values[2]]
        assert all(isinstance(value, float) for value in found)
    gap = pyarrow.chunked_array([pyarrow.array([1.5]), pyarrow.array([None, 2.5])])
    first, missing, last = results._numbers_in(gap)
    assert (first, last) == (1.5, 2.5) and math.isnan(missing)
    assert results._numbers_in(pyarrow.chunked_array([pyarrow.array([3, 4], "int8")])) == [3, 4]
