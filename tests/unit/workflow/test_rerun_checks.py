"""Why Snakemake would make a run again, by its records; tests/workflow asks Snakemake itself."""

import json
import os
import re
import shutil
from base64 import urlsafe_b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.targets import FigureTarget, RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.provenance import numerics
from fedrepro.run import standing
from fedrepro.run.results import seal_of_run
from fedrepro.support.files import sha256_of
from fedrepro.workflow import rerun_checks
from fedrepro.workflow import snakemake_patches as patches
from fedrepro.workflow.graph import OUTPUTS_OF_A_RUN, Graph
from fedrepro.workflow.rerun_checks import RerunChecks, reasons_of
from support.manifests import write_manifest
from support.places import ROOT
from support.report_world import make_system

RUN = RunKey("fedgo/digits-demo", "fedavg", 1)
WILDCARDS = SimpleNamespace(setting=RUN.setting, method=RUN.method, seed="1")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    """With a finished run, what it was made from, and Snakemake's records of it."""
    # Its data are files of any content.
    monkeypatch.setattr(standing, "prepared_differences", lambda bench, name: [])
    monkeypatch.setattr(standing, "prepared", lambda bench, name: None)
    bench = load(make_system(tmp_path, "fedgo"))
    for name in (*inputs(bench), *(f"{RUN.folder}/{each}" for each in OUTPUTS_OF_A_RUN)):
        path = bench.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    (bench.root / RUN.folder / "timing.json").write_text("{}")
    write_manifest(bench.root / RUN.folder, manifest_of(bench))
    for path in (bench.root / "results").rglob("*"):
        os.utime(path, ns=(10**18, 10**18))
    write_records(bench)
    return bench


def manifest_of(bench: Workbench) -> dict[str, Any]:
    """What a run of today says of itself."""
    spec = bench.run_spec(RUN.setting, RUN.method, RUN.seed)
    described = json.loads(json.dumps(spec.description()))
    made_by = {"config_hash": spec.digest, "numerics": numerics.of_run(spec)}
    return {"run": described, "files": {}, **made_by}


def inputs(bench: Workbench) -> list[str]:
    graph = Graph(bench)
    return [*graph.inputs_of_run(WILDCARDS), *graph.parent_of_run(WILDCARDS)]


def record_of(bench: Workbench, folder: Path, name: str) -> Path:
    key = urlsafe_b64encode(f"{RUN.folder}/{name}".encode()).decode()
    return bench.root / folder / key


def write_records(bench: Workbench, stacked: bool = False, **changes: Any) -> None:
    spec = bench.run_spec(RUN.setting, RUN.method, RUN.seed)
    definition = spec.digest + " stacked" * stacked
    record = {
        "record_format_version": 6,
        "params": sorted(
            [repr(numerics.in_words(numerics.of_run(spec))), repr(definition)]
        ),
        "input": sorted(inputs(bench)),
        "input_checksums": {
            name: f"sha256:{sha256_of(bench.root / name)}" for name in inputs(bench)
        },
    } | changes  # fmt: skip
    for name in OUTPUTS_OF_A_RUN:
        path = record_of(bench, patches.RECORDS, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")


def test_the_outputs_are_those_of_the_rule() -> None:
    text = (ROOT / "workflow/rules/run.smk").read_text(encoding="utf-8")
    rule = text.partition("output:")[2].partition("log:")[0]
    assert set(re.findall(r"/seed\{seed\}/([\w.]+)", rule)) == set(OUTPUTS_OF_A_RUN)


def test_a_run_that_is_as_recorded_is_left_alone(bench: Workbench) -> None:
    assert reasons_of(bench, RUN) == []


def reason(bench: Workbench) -> str:
    """The only reason to make the run again."""
    (line,) = reasons_of(bench, RUN)
    return line


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"params": ["'another'"]}, []),  # its manifest is of today's code and configuration
        ({"params": ["'another'"], "record_format_version": 5}, []),
        ({"input": ["something else"]}, ["inputs"]),
        ({"input": []}, ["inputs"]),
        ({"stacked": True}, []),
        ({"params": None, "input": None, "input_checksums": None}, []),
        ({"params": 7, "record_format_version": 6}, []),
    ],
)
def test_what_is_other_than_recorded(
    bench: Workbench, changes: dict[str, Any], words: list[str]
) -> None:
    write_records(bench, **changes)
    found = reasons_of(bench, RUN)
    assert len(found) == len(words)
    assert all(word in line for line, word in zip(found, words, strict=True))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"numerics": {"core": "another"}}, ": core"),
        ({"arithmetic": "stacked"}, "arithmetic"),
        ({"run": {"setting": RUN.setting, "method": "fedprox", "seed": 1}}, "fedprox"),
    ],
)
def test_a_manifest_that_is_not_of_today_counts_whatever_is_recorded(
    bench: Workbench, changes: dict[str, Any], words: str
) -> None:
    write_manifest(bench.root / RUN.folder, manifest_of(bench) | changes)
    (line,) = reasons_of(bench, RUN)
    assert words in line
    write_records(bench, input=["something else"])  # which alone is a reason
    assert "inputs" in reason(bench)


def test_the_parent_s_manifest_is_an_input(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = "results/runs/fedgo/digits-demo/fedprox/seed1/manifest.json"
    monkeypatch.setattr(Graph, "parent_of_run", lambda self, wildcards: [parent])
    assert "inputs" in reason(bench)
    (bench.root / parent).parent.mkdir(parents=True)
    (bench.root / parent).write_text("{}", encoding="utf-8")
    write_records(bench)
    assert reasons_of(bench, RUN) == []


def test_times_of_inputs_do_not_count(bench: Workbench) -> None:
    """The manifest states what it was made from, and `standing_of` compares that."""
    for name in inputs(bench):
        (bench.root / name).write_text("other", encoding="utf-8")
    assert reasons_of(bench, RUN) == []


@pytest.mark.parametrize("name", OUTPUTS_OF_A_RUN)
def test_the_record_of_every_output_counts(bench: Workbench, name: str) -> None:
    """One job makes them all, but a record may be of an earlier one."""
    path = record_of(bench, patches.RECORDS, name)
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(record | {"input": [*record["input"], "more"]}), encoding="utf-8")
    assert "inputs" in reason(bench)
    path.write_text(json.dumps(record), encoding="utf-8")
    assert reasons_of(bench, RUN) == []


def test_a_missing_file_and_a_job_that_did_not_end(bench: Workbench) -> None:
    begun = record_of(bench, patches.BEGUN, "manifest.json")
    begun.parent.mkdir(parents=True)
    begun.touch()
    assert "finish" in reason(bench)
    (bench.root / RUN.folder / "timing.json").unlink()
    (line,) = reasons_of(bench, RUN)
    assert line.startswith("timing.json: missing")
    (bench.root / RUN.folder / "manifest.json").unlink()
    assert reason(bench).startswith(f"{RUN.folder}/manifest.json ")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_damaged_records_are_none(bench: Workbench, text: str) -> None:
    record_of(bench, patches.RECORDS, "manifest.json").write_text(text, encoding="utf-8")
    assert reasons_of(bench, RUN) == []
    outputs = [RUN.folder / name for name in OUTPUTS_OF_A_RUN]
    assert patches.recorded_parameters(bench.root, outputs, (), 2) is None


def test_long_names_of_records_are_folders() -> None:
    path = patches._file_of(Path("x"), Path("y" * 300))
    first, second = path.relative_to("x").parts
    assert len(first) == 255 and first[0] == "@" and len(second) == 400 - 254


def test_parameters_are_those_recorded_but_for_the_known_ones(bench: Workbench) -> None:
    outputs = [RUN.folder / name for name in OUTPUTS_OF_A_RUN]
    write_records(bench, params=["'a'", "'b'", "'c'"])
    assert patches.recorded_parameters(bench.root, outputs, ("b",), 2) == ["a", "c"]
    assert patches.recorded_parameters(bench.root, outputs, ("b",), 1) is None
    assert patches.recorded_parameters(bench.root, outputs, ("d",), 2) is None
    path = record_of(bench, patches.RECORDS, "manifest.json")
    one = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(one | {"params": ["'a'", "'b'", "'d'"]}), encoding="utf-8")
    assert patches.recorded_parameters(bench.root, outputs, ("b",), 2) is None


# --- what a rule's input functions force ----------------------------------------------------------
def checks_of(bench: Workbench, main: bool = True) -> tuple[RerunChecks, set[str]]:
    """The functions, and the outputs that they have Snakemake make."""
    forced: set[str] = set()
    dag = SimpleNamespace(forcefiles=forced)
    return RerunChecks(Graph(bench), SimpleNamespace(is_main_process=main, dag=dag)), forced


@pytest.mark.parametrize("main", [False, True])
def test_a_stale_run_is_forced_and_its_reason_kept(bench: Workbench, main: bool) -> None:
    """In the process that decides, and not in those of jobs."""
    checks, forced = checks_of(bench, main)
    assert checks.stale_run(WILDCARDS) == [] and not forced and not checks.reasons
    write_manifest(bench.root / RUN.folder, manifest_of(bench) | {"numerics": {"core": "other"}})
    assert checks.stale_run(WILDCARDS) == []
    name = f"{RUN.folder}/manifest.json"
    assert forced == ({name} if main else set())
    assert {*checks.reasons} == forced
    assert not main or "core" in checks.reasons[name]


def test_stale_data_and_partitions_are_forced_by_their_own_files(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    differences = {"data": [], "partition": []}
    asked: list[object] = []
    monkeypatch.setattr(rerun_checks, "in_words", " ".join)

    def of_data(_: object, name: str) -> list[str]:
        asked.append(name)
        return differences["data"]

    def of_partition(_: Graph, wildcards: Any) -> tuple[Path, str]:
        return Path(f"results/{wildcards.partition}.npz"), " ".join(differences["partition"])

    monkeypatch.setattr(rerun_checks, "prepared_differences", of_data)
    monkeypatch.setattr(Graph, "stale_partition", of_partition)
    named = SimpleNamespace(dataset="digits", partition="iid", seed="3")
    for data, partition in (([], []), (["other"], []), ([], ["code"])):
        differences |= {"data": data, "partition": partition}
        checks, forced = checks_of(bench)
        assert checks.stale_data(named) == checks.stale_partition(named) == []
        wanted = {"results/data/digits/meta.json": "other"} if data else {}
        wanted |= {"results/iid.npz": "code"} if partition else {}
        assert (checks.reasons, forced) == (wanted, {*wanted})
    assert {*asked} == {"digits"}


def test_a_file_without_a_record_is_forced(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is missing is made anyway; one with a record is of what Snakemake knows."""
    monkeypatch.chdir(bench.root)
    for name, there, recorded in (("a", False, False), ("b", True, False), ("c", True, True)):
        path = Path(f"results/tables/{name}.json")
        path.parent.mkdir(exist_ok=True)
        if there:
            path.touch()
        if recorded:
            record = patches._file_of(patches.RECORDS, path)
            record.write_text('{"rule": "table"}', encoding="utf-8")
        checks, forced = checks_of(bench)
        check = checks.unrecorded("results/tables/{item}.json")
        wildcards = SimpleNamespace(items=lambda name=name: [("item", name)])
        assert check(wildcards) == []
        assert forced == ({str(path)} if there and not recorded else set())


def with_its_definition(root: Path, path: Path, definition: str) -> None:
    (root / path).write_text(json.dumps({"definition": definition}), encoding="utf-8")


@pytest.mark.parametrize(
    ("output", "note"),
    [
        ("results/tables/{item}.json", with_its_definition),  # also one from another machine
        ("reports/site/{item}.html", rerun_checks.note_definition),
    ],
)
def test_a_file_of_another_definition_than_recorded_is_forced(
    output: str, note: Any, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one made by hand, or during a call, while its experiment file was edited."""
    monkeypatch.chdir(bench.root)
    path = Path(output.format(item="mine"))
    path.parent.mkdir(parents=True)
    path.touch()
    record = patches._file_of(patches.RECORDS, path)
    record.write_text('{"record_format_version": 6, "params": ["\'then\'"]}', encoding="utf-8")
    wildcards = SimpleNamespace(items=lambda: [("item", "mine")])
    for noted, forced_then in ((None, False), ("now", True), ("then", False), ("", True)):
        if noted is not None:
            note(bench.root, path, noted)
        checks, forced = checks_of(bench)
        assert checks.unrecorded(output)(wildcards) == []
        assert forced == ({str(path)} if forced_then else set()), noted
    # Snakemake's older records have not all parameters.
    record.write_text('{"record_format_version": 5, "params": []}', encoding="utf-8")
    checks, forced = checks_of(bench)
    assert checks.unrecorded(output)(wildcards) == [] and not forced


@pytest.mark.parametrize("key", ["of", "lacks"])
def test_a_table_of_other_results_is_forced_whatever_the_times(
    key: str, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that a command has made since, or whose run was replaced by an older file."""
    monkeypatch.chdir(bench.root)
    seal = seal_of_run(bench.root, RUN)
    path = Path("results/tables/mine.json")
    path.parent.mkdir(parents=True)
    record = patches._file_of(patches.RECORDS, path)
    wildcards = SimpleNamespace(items=lambda: [("item", "mine")])
    other: dict[str, Any] = {"of": {RUN.name: "another"}, "lacks": [RUN.name]}
    own: dict[str, Any] = {"of": {RUN.name: seal}, "lacks": ["fedgo/digits-demo/fedprox/seed1"]}
    for content, since, forced_then in (
        (other, True, True),
        (own, True, False),
        (other, False, True),
        (own, False, False),
    ):
        path.write_text(json.dumps({key: content[key]}), encoding="utf-8")
        ended = path.stat().st_mtime + (-1 if since else 1)
        record.write_text(json.dumps({"rule": "table", "endtime": ended}), encoding="utf-8")
        checks, forced = checks_of(bench)
        assert checks.unrecorded("results/tables/{item}.json")(wildcards) == []
        assert forced == ({str(path)} if forced_then else set())


def test_a_figure_of_other_results_is_forced(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page is no file of results: what a command noted on it says which runs it shows."""
    monkeypatch.chdir(bench.root)
    path = Path("reports/site/mine.html")
    path.parent.mkdir(parents=True)
    path.touch()
    record = patches._file_of(patches.RECORDS, path)
    record.write_text(json.dumps({"rule": "page", "params": ["'now'"]}), encoding="utf-8")
    wildcards = SimpleNamespace(items=lambda: [("item", "mine")])

    def forced() -> bool:
        checks, made = checks_of(bench)
        assert checks.unrecorded("reports/site/{item}.html")(wildcards) == []
        return bool(made)

    rerun_checks.note_definition(bench.root, path, "now", [RUN])
    assert not forced()
    (bench.root / RUN.folder / "manifest.json").unlink()
    write_manifest(bench.root / RUN.folder, {**manifest_of(bench), "rounds_done": 7})
    assert forced()
    rerun_checks.note_definition(bench.root, path, "now", [RUN])
    assert not forced()
    # Between two releases there were notes of another form: nothing is known by them.
    for note in ("now", "12", "{}", "[]"):
        (rerun_checks.DEFINITIONS / path).write_text(note, encoding="utf-8")
        assert rerun_checks.noted_definition(path) is None
        assert not forced()


def test_commands_note_the_definition_that_the_rule_has(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind of page, as their rule's parameter; without Snakemake's folder, of none."""
    monkeypatch.chdir(bench.root)
    graph = Graph(bench)
    table = next(iter(bench.tables().values()))
    figure = next(target for target in bench.targets().values() if isinstance(target, FigureTarget))
    at = {"system": table.system, "item": table.item, "scale": table.scale}
    assert main(["table", table.system, table.item]) == 0
    made = graph.table_definition(SimpleNamespace(**at))
    assert rerun_checks.noted_definition(table.path) == made
    assert main(["page", figure.system, figure.item]) == 0
    wildcards = SimpleNamespace(system=figure.system, item=figure.item)
    assert rerun_checks.noted_definition(figure.page) == graph.page_definition(wildcards)

    shutil.rmtree(".snakemake")
    assert main(["table", table.system, table.item]) == 0
    assert not Path(".snakemake").exists()
