"""What a run's data are now, and which of them would be made again: data, partition and inputs."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import ArtifactFromFile
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import open_dataset, what_is
from fedrepro.data.prepare import prepare
from fedrepro.provenance import inputs
from fedrepro.provenance.identity import Difference, Meaning
from fedrepro.run import input_artifacts, standing
from fedrepro.run.results import RunRecord
from fedrepro.support.checksummed_json import sealed
from support.manifests import write_bare
from support.older_data import read_by_the_first_reader
from support.refusals import refused

DATASETS = """\
datasets:
  mine: &own
    {kind: tabular_csv, title: One, licence: none, citation: none, path: mine.csv, label: y,
     test_fraction: 0.25}
  other: {<<: *own, title: Two, path: other.csv}
"""
EXPERIMENT = """\
system: own
title: Own
paper: none
settings:
  fed: &fed
    dataset: mine
    partition: {scheme: iid, clients: 2, server: 0.25}
    model: logistic
    rounds: 1
    participation: 1
    epochs: 1
    batch_size: 4
    optimizer: {lr: 0.1}
    inputs: {unlabelled: {dataset: other, share: 0.5}}
  own: {<<: *fed, inputs: {unlabelled: server}}
"""


def table(rows: int) -> str:
    return "a,y\n" + "".join(f"{(7 * at) % 11},{at % 2}\n" for at in range(rows))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    """With prepared data and a partition."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "config/config.yaml": "{}",
        "config/datasets.yaml": DATASETS,
        "config/experiments/own.yaml": EXPERIMENT,
        "mine.csv": table(32),
        "other.csv": table(48),
    }.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    bench = load(tmp_path)
    for name in ("mine", "other"):
        prepare(name, bench.datasets[name])
    partitioned(bench, "own/fed")
    monkeypatch.setattr(standing, "_partitions", {})
    monkeypatch.setattr(standing, "_read", {})
    return bench


def partitioned(bench: Workbench, setting: str, **changes: Any) -> Path:
    """A setting's partition, written to its place."""
    spec, dataset = bench.setting(setting), open_dataset("mine")
    path = bench.root / spec.partition_path(1)
    made = inputs.make_partition_of(spec, 1, dataset, bench.plugins)
    replace(made, **changes).save(path)
    return path


def now(bench: Workbench, setting: str = "own/fed") -> tuple[dict[str, Any], list[str]]:
    data, differing = standing.data_now(bench, bench.run_spec(setting, "feddf", 1))
    return data, [each.key for each in differing]


def test_what_is_there_and_current_is_stated(bench: Workbench) -> None:
    data, differing = now(bench)
    assert differing == []
    partition = standing.partition_now(bench, bench.setting("own/fed"), 1)
    assert {**data, **partition.held} == data and {"partition_sha256", "clients"} <= data.keys()
    assert data["content_sha256"] == open_dataset("mine").meta["content_sha256"]
    assert data["weights_sha256"] is None
    other, spec = open_dataset("other"), bench.run_spec("own/fed", "feddf", 1)
    source: Any = spec.inputs["unlabelled"]
    assert data["given"] == {"unlabelled": standing.digest_of_share(other, source)}
    digests = {
        standing.digest_of_share(other, source.model_copy(update={"share": of}))
        for of in (0.5, 0.25)
    }
    digests.add(
        standing.digest_of_share(open_dataset("mine"), source.model_copy(update={"share": 0.5}))
    )
    assert len(digests) == 3
    assert now(bench, "own/own")[0]["given"] == {"unlabelled": partition.server}
    elsewhere, _ = standing.data_now(bench, bench.run_spec("own/fed", "feddf", 2))
    assert "partition_sha256" not in elsewhere  # which is of another seed


def test_data_whose_preparation_failed_are_not_those_of_a_run(bench: Workbench) -> None:
    """Snakemake removes meta.json before it prepares again; arrays of another entry stay."""
    for name, folder in ((name, bench.root / "results/data" / name) for name in ("mine", "other")):
        (folder / "meta.json").unlink()
        assert f"data set {name}" in now(bench)[1]
        shutil.rmtree(folder)  # by the user, to save space
        assert f"data set {name}" not in now(bench)[1]


def test_what_a_run_is_given_is_what_its_data_are_compared_by(bench: Workbench) -> None:
    mine, shares = open_dataset("mine"), partition_of(bench)
    for setting in ("own/fed", "own/own"):
        spec = bench.run_spec(setting, "feddf", 1)
        loaded = input_artifacts.load(bench.root, spec, mine, shares)
        given = {name: each.sha256 for name, each in loaded.items()}
        assert given == now(bench, setting)[0]["given"]
        with refused(names=("mine" if setting == "own/own" else "other", "standardise")):
            alone = replace(mine, client_standardised=(0,))
            input_artifacts.load(bench.root, spec, alone, shares)
    file = bench.root / "results/data/other/train_x.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with refused(names="other"):
        input_artifacts.load(bench.root, bench.run_spec("own/fed", "feddf", 1), mine, shares)


def test_weights_that_the_configuration_states_are_not_stated_twice(bench: Workbench) -> None:
    spec = replace(bench.run_spec("own/fed", "feddf", 1), weights=("w", SimpleNamespace()))  # type: ignore[arg-type]
    assert "weights_sha256" not in standing.data_now(bench, spec)[0]


def test_an_input_that_is_not_known_is_not_compared(bench: Workbench) -> None:
    """Nor are the others then: which of them a record states cannot be told from one key."""
    for sha256, given in ((None, False), ("a" * 64, True)):
        spec = bench.run_spec("own/fed", "feddf", 1)
        spec = replace(
            spec,
            inputs={**spec.inputs, "generator": ArtifactFromFile(file=Path("g"), sha256=sha256)},
        )
        data, differing = standing.data_now(bench, spec)
        assert ("given" in data) == given and differing == []
        assert not given or data["given"]["generator"] == sha256


def test_a_partition_by_other_code_is_named_and_not_stated(bench: Workbench) -> None:
    made_with = {**partition_of(bench).made_with, "code": "another"}
    partitioned(bench, "own/fed", made_with=made_with)
    for setting in ("own/fed", "own/own"):
        data, differing = now(bench, setting)
        assert differing == ["partition code"]
        assert "partition_sha256" not in data and data["content_sha256"]
        assert ("given" in data) == (setting == "own/fed")  # the server's samples are its own


def partition_of(bench: Workbench) -> Any:
    return standing.Partition.load(bench.root / bench.setting("own/fed").partition_path(1))


def test_a_partition_is_compared_again_when_it_or_what_it_is_made_from_changes(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process, which keeps what it has read."""
    setting = bench.setting("own/fed")
    path = bench.root / setting.partition_path(1)
    assert standing.partition_now(bench, setting, 1).differences == ()
    wanted = inputs.partition_record(setting, open_dataset("mine"), bench.plugins)
    with monkeypatch.context() as patch:
        patch.setattr(inputs, "partition_record", lambda *_: {**wanted, "code": "another"})
        assert len(standing.partition_now(bench, setting, 1).differences) == 1
    assert standing.partition_now(bench, setting, 1).differences == ()
    text = path.with_suffix(".json").read_text(encoding="utf-8")
    path.with_suffix(".json").write_text(text.replace(wanted["code"], "0" * len(wanted["code"])))
    os.utime(path.with_suffix(".json"), (1e9, 1e9))
    assert len(standing.partition_now(bench, setting, 1).differences) == 1  # of the same size


def test_a_result_stands_while_its_data_are_those_of_now(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code and configuration, which take seconds to fingerprint, are the same here."""

    def differences_of(record: RunRecord, spec: RunSpec, data: dict[str, Any]) -> list[Difference]:
        then = record.manifest["data"]
        return [standing._other(key, key) for key in data if then[key] != data[key]]

    monkeypatch.setattr(standing, "differences_of", differences_of)
    run = RunKey("own/fed", "feddf", 1)
    spec = bench.run_spec(run.setting, run.method, run.seed)
    data, _ = standing.data_now(bench, spec)
    write_bare(bench.root, run, data=data)
    assert standing.standing_of(bench, run).is_current
    standing.refuse_stale_input(bench, spec)
    for key, value in (("content_sha256", "0"), ("given", {"unlabelled": "0"}), ("clients", 3)):
        write_bare(bench.root, run, data=data | {key: value})
        assert key in standing.standing_of(bench, run).why
    write_bare(bench.root, run, data=data)
    Path("other.csv").write_text(table(40), encoding="utf-8")
    (stale,) = standing.standing_of(bench, run).differences
    assert stale.key.endswith(" other") and stale.meaning is Meaning.OTHER_NUMBERS
    with refused(names="other"):
        standing.refuse_stale_input(bench, spec)


def test_all_data_whose_bytes_changed_are_named(bench: Workbench) -> None:
    for name in ("mine", "other"):
        Path(f"{name}.csv").write_text(table(40), encoding="utf-8")
    assert [key.split()[-1] for key in now(bench)[1]] == ["mine", "other"]


@pytest.mark.parametrize("name", ["mine", "other"])
def test_data_whose_bytes_changed_are_named_and_not_stated(bench: Workbench, name: str) -> None:
    Path(f"{name}.csv").write_text(table(40), encoding="utf-8")
    data, differing = now(bench)
    assert differing[0] == f"data set {name}"
    if name == "mine":
        assert data == {}


@pytest.mark.parametrize("name", ["mine", "other"])
def test_data_are_known_after_their_files_have_moved_or_gone(bench: Workbench, name: str) -> None:
    stated = now(bench)
    text = Path("config/datasets.yaml").read_text(encoding="utf-8")
    Path("moved.csv").write_bytes(Path(f"{name}.csv").read_bytes())
    Path(f"{name}.csv").unlink()
    assert now(bench) == stated
    Path("config/datasets.yaml").write_text(text.replace(f"{name}.csv", "moved.csv"))
    assert now(load(bench.root)) == stated


def test_what_an_older_reader_made_counts_if_todays_makes_the_same(bench: Workbench) -> None:
    stated = now(bench)
    read_by_the_first_reader(bench.root, "mine")
    partitioned(bench, "own/fed")
    data, differing = now(bench)
    assert (data, differing) == (stated[0], [])
    dataset = standing.prepared(bench, "mine")
    assert dataset and dataset.standardised and dataset.train.missing is None
    content = "0" * 64
    rewrite(bench.root / "results/data/mine/meta.json", content_sha256=content)
    assert [key.split()[-1] for key in now(bench)[1]] == ["mine"]
    Path("mine.csv").unlink()  # what is gone can't be read anew
    assert now(bench)[1] == []
    dataset = standing.prepared(bench, "mine")
    assert dataset and dataset.meta["content_sha256"] == content


def rewrite(file: Path, **changes: Any) -> None:
    """Let prepared data say something else."""
    meta = json.loads(file.read_bytes()) | changes
    del meta["seal"]
    file.write_text(json.dumps(sealed(meta, what_is("mine"))), encoding="utf-8")
