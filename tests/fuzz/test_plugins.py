"""Files of the workbench, damaged: partitions, data, checkpoints, manifests; logs of losses."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from fedrepro.config.targets import RunKey
from fedrepro.data.dataset import open_dataset
from fedrepro.data.partition.partition import Partition, make_partition
from fedrepro.data.partition.schemes import Iid
from fedrepro.data.prepare import prepare
from fedrepro.papers.aaggff.loss_log import read_log
from fedrepro.papers.aaggff.replay import replay, rule_of
from fedrepro.run import results
from fedrepro.run.integrity import Check
from fedrepro.run.store import load_tree, save_tree
from support.malformed import Mutation, fuzzed, mutated, mutated_archive, mutations, watched
from support.raw_data import idx_entry, idx_files, write_packed
from support.results_tree import write_tree
from support.tiny_run import Stop, carry_out, run_spec, stop_after

SHARE = st.floats(0, 1, exclude_max=True)
# In results/, as everything that a command writes.
IN = "results"


def damaged(folder: Path, whole: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """``folder`` as ``whole``, but for one file."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    (folder / name).write_bytes(change((folder / name).read_bytes()))


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A folder with a partition, and a prepared data set."""
    labels = np.arange(60) % 10
    spec = Iid(scheme="iid", clients=3, test_fraction=0.2)
    folder = tmp_path / IN / "whole"
    make_partition(labels, None, spec, 1).save(folder / PARTITION)
    write_packed(idx_files(), tmp_path / IN / "archives")
    prepare(
        "d",
        idx_entry(idx_files()),
        tmp_path / IN / "archives",
        downloads=tmp_path / IN / "raw",
        root=folder,
    )
    save_tree(folder / "x.safetensors", {"a": {"b": torch.ones(3)}, "c": {}}, {"x": 1})
    return folder


PARTITION = Path("partitions/d/iid/seed1.npz")  # the path is what it is


@pytest.mark.parametrize(
    "name",
    [str(PARTITION), str(PARTITION.with_suffix(".json")), "d/meta.json", "x.safetensors"],
)
def test_what_is_read_before_a_run(tmp_path: Path, whole: Path, name: str) -> None:
    folder = tmp_path / IN / "now"
    labels = np.arange(60) % 10

    @fuzzed(30)
    @given(SHARE, mutations(), st.booleans())
    def check(member: float, how: list[Mutation], all_of_it: bool) -> None:
        change = (
            mutated if all_of_it else (lambda content, how: mutated_archive(content, member, how))
        )
        damaged(folder, whole, name, lambda content: change(content, how))
        with watched(tmp_path):
            if name.startswith("partitions"):
                Partition.load(folder / PARTITION).fits(labels)
            elif name.startswith("x"):
                load_tree(folder / name)
            else:
                opened = open_dataset("d", folder)
                assert len(opened.train.y) >= 0

    check()


def test_checkpoints(tmp_path: Path) -> None:
    """Those with clients' states; a run goes on from what is whole, or starts again when told."""
    config = run_spec("scaffold", rounds=4)

    with pytest.raises(Stop):
        carry_out(tmp_path / IN / "seed1", config, stop_after(3))
    whole = tmp_path / IN / "whole"
    (tmp_path / IN / "seed1.partial").rename(whole)
    names = sorted(str(path.relative_to(whole)) for path in whole.rglob("*.safetensors"))
    assert len(names) > 2

    @fuzzed(25)
    @given(SHARE, mutations())
    def check(which: float, how: list[Mutation]) -> None:
        shutil.rmtree(tmp_path / IN / "seed1", ignore_errors=True)
        name = names[int(which * len(names))]
        partial = tmp_path / IN / "seed1.partial"
        damaged(partial, whole, name, lambda content: mutated(content, how))
        with watched(tmp_path):
            carry_out(tmp_path / IN / "seed1", config)

    check()


def test_finished_runs(tmp_path: Path) -> None:
    """For the report: every file of a run's folder."""
    run = RunKey("ima/x", "fedavg", 1)
    carry_out(tmp_path / run.folder, run_spec(rounds=3))
    whole = tmp_path / IN / "whole"
    (tmp_path / run.folder).rename(whole)
    names = sorted(path.name for path in whole.iterdir())

    @fuzzed(60)
    @given(SHARE, mutations())
    @example(0.0, [("token", 0.0, 0.0, b"1")])
    def check(which: float, how: list[Mutation]) -> None:
        name = names[int(which * len(names))]
        damaged(tmp_path / run.folder, whole, name, lambda content: mutated(content, how))
        with watched(tmp_path):
            record = results.read_run(tmp_path, run)
            assert record.state in ("finished", "diverged", "stopped early", "damaged")
            for table in (record.rounds, record.clients, record.decisions, record.mixtures):
                assert all(isinstance(value, float) for each in table.values() for value in each)

    check()


def test_a_results_tree_that_is_verified(tmp_path: Path) -> None:
    """Each of its files, and those that are JSON also as JSON of another shape."""
    whole = tmp_path / IN / "whole"
    write_tree(whole)
    names = sorted(str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file())
    described = [name for name in names if name.endswith(".json")]

    @fuzzed(40)
    @given(SHARE, mutations(), st.booleans())
    def check(which: float, how: list[Mutation], any_file: bool) -> None:
        chosen = names if any_file else described
        name = chosen[int(which * len(chosen))]
        damaged(tmp_path / IN / "tree", whole, name, lambda content: mutated(content, how))
        with watched(tmp_path):
            assert all("\n" not in fault for fault in Check(tmp_path / IN / "tree").faults())

    check()


def logs() -> dict[str, bytes]:
    wide = pd.DataFrame([[0.5, 1.0, 2.0], [0.4, 0.9, 1.5]])
    long = pd.DataFrame({"round": [1, 1, 2], "client": [0, 2, 1], "loss": [0.5, 1.0, 2.0]})
    made = {}
    for name, table in (("wide", wide), ("long", long)):
        out = io.BytesIO()
        table.rename(columns=str).to_parquet(out)
        made[f"{name}.parquet"] = out.getvalue()
        made[f"{name}.csv"] = table.to_csv(index=False).encode()
    out = io.BytesIO()
    np.save(out, wide.to_numpy(), allow_pickle=False)
    made["wide.npy"] = out.getvalue()
    return made


@fuzzed(100)
@given(st.sampled_from(sorted(logs())), mutations(), st.sampled_from(["afl", "term", "aaggff_d"]))
@example("long.csv", [("token", 0.45, 0.0, b"1e15")], "afl")
def test_logs_of_losses(name: str, how: list[Mutation], rule: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(mutated(logs()[name], how))
        with watched(Path(folder)), np.errstate(all="ignore"):
            log = read_log(path)
            replay(rule_of(rule), log.clients, log.observed())


@pytest.mark.parametrize("name", ["manifest.json", "timing.json"])
@pytest.mark.parametrize(
    "content",
    [b"null", b"[]", b"{}", b'"x"', b"1", b'{"run": []}', b'{"files": 1, "run": 1}', b"[" * 10**5],
    ids=range(8),
)
def test_manifests_of_another_shape(tmp_path: Path, name: str, content: bytes) -> None:
    run = RunKey("ima/x", "fedavg", 1)
    path = tmp_path / run.folder
    path.mkdir(parents=True)
    (path / "manifest.json").write_text(json.dumps({"status": "finished"}))
    (path / name).write_bytes(content)
    with watched(tmp_path):
        results.read_run(tmp_path, run)
