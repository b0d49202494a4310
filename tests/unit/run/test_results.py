"""What became of runs, as their folders say."""

import shutil
import socket
from pathlib import Path

import pytest

from fedrepro.api.runs import load
from fedrepro.config.targets import RunKey
from fedrepro.run.integrity import Check
from fedrepro.run.results import LOGS, PAPERS, read_once, read_run, reference_runs
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError
from support.manifests import write_bare
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


def test_kept_checkpoints_without_a_list_of_files_are_damage(tmp_path: Path) -> None:
    about = tmp_path / "results/trunks/test/blobs/fedavg/seed1/round3/about.json"
    about.parent.mkdir(parents=True)
    about.write_text('{"files": []}', encoding="utf-8")
    (fault,) = Check(tmp_path / "results").faults()
    assert fault == f"{about}: damaged: it has no checksum, as files of older versions"
    checksummed_json.write(about, {"files": []}, "trunks/test/blobs/fedavg/seed1/round3/about")
    (fault,) = Check(tmp_path / "results").faults()
    assert fault == f"{about.parent}: damaged: files: expected names with hashes"


def test_why_a_run_failed_names_no_path_and_no_machine(tmp_path: Path) -> None:
    log = tmp_path / LOGS / RUN.setting / RUN.method / "seed1.log"
    log.parent.mkdir(parents=True)
    host = socket.gethostname()
    log.write_text(
        f"fedrepro: {tmp_path}/results/data/x: lost the lock to process 7 on node-3; see "
        f"/home/somebody/x on {host}: \x1b[31mred\n",
        encoding="utf-8",
    )
    assert read_run(tmp_path, RUN).why == (
        "failed: ./results/data/x: lost the lock to process 7 on a machine; see … on a machine: "
        "\\x1b[31mred"
    )


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("fedrepro: first\nfedrepro: second\n", "second"),
        ("fedrepro: first\nround 1\nFatal Python error: Aborted\n\nThread 0x1:\n", "Aborted"),
        ("Fatal Python error: Aborted\nfedrepro: second\nround 2\n", "second"),
        ("round 1\nfedrepro said nothing\n", "without a word"),
    ],
)
def test_a_run_failed_for_the_last_reason_in_its_log(tmp_path: Path, log: str, why: str) -> None:
    """A log of a run that failed, was begun anew and failed again has both."""
    path = tmp_path / LOGS / RUN.setting / RUN.method / "seed1.log"
    path.parent.mkdir(parents=True)
    path.write_text(log, encoding="utf-8")
    status = read_run(tmp_path, RUN)
    assert status.state == "failed" and why in status.why and "first" not in status.why
