"""Methods and hyperparameters of experiment files are tried out before anything runs."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.config.loading import OVERRIDES, load
from fedrepro.methods import registry
from fedrepro.support.errors import UserError
from fedrepro.workflow import checks
from support.places import ROOT
from support.search_world import EXPERIMENT, FILE, settle

IMA = Path("config/experiments/ima.yaml")
COLUMN = "tables.table_1.columns.FedAvg.method: "


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "config", tmp_path / "config")
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "where", "nearest"),
    [
        ("fedprox: { mu:", "fedprox: { muu:", "methods.fedprox: ", "'mu'"),
        ("fedprox: { mu: 0.01", "fedprox: { mu: high", "methods.fedprox: ", ""),
        ("variant_of: fedgma,", "variant_of: fedgna,", "methods.fedgma_hard: ", "'fedgma'"),
        ("ima: { period: 4", "ima: { priod: 4", "settings.fmnist-shards2-demo.methods.ima: ",
         "'period'"),
        ("fedprox: { mu:", "fedprox: { parent: fedavgg, mu:", "methods.fedprox.parent: ",
         "'fedavg'"),
        ("method: fedavg,", "method: fedavgg,", COLUMN, "'fedavg'"),
        ("method: fedavg,", "method: ima+central,", COLUMN, ""),
        ("method: fedavg,", "method: fedavg+ima,", COLUMN, ""),
        (
            "wrapper: ima,",
            "wrapper: imma,",
            "tables.table_1.columns.FedAvg + IMA.method: ",
            "'ima'",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_composed_is_one_line(
    copy: Path, old: str, new: str, where: str, nearest: str
) -> None:
    text = (copy / IMA).read_text(encoding="utf-8")
    assert old in text
    (copy / IMA).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        checks.check_methods(load(copy))
    line = str(caught.value)
    assert line.startswith(f"{IMA}: {where}")
    assert "expected" in line
    assert not nearest or f"did you mean {nearest}" in line
    assert "\n" not in line


def test_what_has_been_checked_is_not_composed_again(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks.check_methods(load(copy))

    def refuse(*arguments: object) -> None:
        raise AssertionError("composed again")

    monkeypatch.setattr(registry, "compose", refuse)
    checks.check_methods(load(copy))
    path = copy / IMA
    path.write_text(path.read_text(encoding="utf-8").replace("mu: 0.01", "mu: 0.02"))
    with pytest.raises(AssertionError, match="composed again"):
        checks.check_methods(load(copy))
    (copy / checks.MARK).write_bytes(b"\xff\xfe of another program")
    with pytest.raises(AssertionError, match="composed again"):
        checks.check_methods(load(copy))


def fault(root: Path, changes: dict[str, Any] | None = None, **experiment: Any) -> str:
    """Why the methods of an experiment cannot be composed, below its file; "" if they can."""
    bench = load(settle(root, changes, **experiment))
    line = ""
    try:
        checks.check_methods(bench)
    except UserError as error:
        line = str(error)
    assert not line or line.startswith(f"{FILE}: ")
    return line.removeprefix(f"{FILE}: ")


def test_a_search_scores_whatever_trains_a_classifier_shared_or_not(tmp_path: Path) -> None:
    """The shared one, or each client's own; of a method that trains none, there is no score."""
    for method, grid in (
        ("fedprox", {"mu": [0.5]}), ("fedevg", {"noise": [0.1]}), ("fedper", {"parts": [1]}),
        ("fedcvae", {"latent": [4]}), ("wgan_gp", {"penalty": [1.0]}), ("local", {}),
    ):  # fmt: skip
        method_class, _ = registry.compose(method, {}, load(settle(tmp_path)).plugins)
        trains = method_class.classifies or method_class.own_classifier
        assert trains == (method in ("fedprox", "fedevg", "fedper", "local"))
        names = {*type(method_class).__dataclass_fields__}
        if {*grid} <= names and grid:
            said = fault(tmp_path, {"methods": [{"method": method, "grid": grid}]})
            assert said.startswith(f"search.grid.methods.{method}: {method!r}: ") != trains


@pytest.mark.parametrize("demo", [False, True])
@pytest.mark.parametrize("around", ["", "ima"])
def test_each_scale_s_methods_of_tables_and_figures_are_tried(
    tmp_path: Path, demo: bool, around: str
) -> None:
    """A name that only one scale uses fails like one that both use."""
    names = {"method": "fedavg", "demo": "fedavg"}
    row = {"label": "r", "setting": "s"}
    for item in ("tables", "figures"):
        wrong = {"label": "A", **names, ("demo" if demo else "method"): "fedavgg"}
        rows = [row | ({"wrapper": around} if around and item == "tables" else {})]
        entry = {"title": "t", "rows": rows, "columns": [wrong]}
        entry |= {"kind": "bars"} if item == "figures" else {}
        said = fault(tmp_path, **{item: {"x": entry}})
        where = "tables.x.columns.A.method" if item == "tables" else "figures.x"
        assert said.startswith(f"{where}: ") and "did you mean 'fedavg'" in said
        assert fault(tmp_path, **{item: {"x": entry | {"columns": [wrong | names]}}}) == ""


def test_a_part_is_tried_as_what_it_uses_with_its_own_values_only(tmp_path: Path) -> None:
    """`variant_of` and `parent` are no hyperparameters; a parent may be a variant, too."""
    good = {
        "near": {"variant_of": "fedprox", "mu": 0.5, "parent": "other"},
        "other": {"variant_of": "fedavg"},
    }  # fmt: skip
    settings = {"s": EXPERIMENT["settings"]["s"] | {"methods": {"near": {"mu": 2.0}}}}
    assert fault(tmp_path, methods=good, search={}, settings=settings) == ""
    for methods, where, said in (
        ({"near": {"variant_of": "fedprox", "mu": -1}}, "methods.near", "method fedprox: mu: -1"),
        ({"near": {"variant_of": "fedprx"}}, "methods.near", "did you mean 'fedprox'"),
        (
            {**good, "other": {"variant_of": "fedavgg"}},
            "methods.near.parent",
            "did you mean 'fedavg'",
        ),
        (
            {**good, "near": {"variant_of": "fedprox", "parent": "avgg"}},
            "methods.near.parent",
            "avgg",
        ),
    ):
        line = fault(tmp_path, methods=methods, search={})
        assert line.startswith(f"{where}: ") and said in line
    settings = {"s": EXPERIMENT["settings"]["s"] | {"methods": {"near": {"mu": -2.0}}}}
    line = fault(tmp_path, methods=good, search={}, settings=settings)
    assert line.startswith("settings.s.methods.near: ") and "mu: -2" in line


def test_what_decides_whether_methods_are_composed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of tables and searches, and the code of the methods that are named, alone."""
    monkeypatch.chdir(tmp_path)
    composed: list[str] = []
    plain = registry.compose
    monkeypatch.setattr(
        registry, "compose", lambda name, *others: composed.append(name) or plain(name, *others)
    )

    def anew(mu: float, values: list[float], title: str = "Own") -> bool:
        composed.clear()
        search = {"methods": [{"method": "fedprox", "grid": {"mu": values}}]}
        checks.check_methods(
            load(settle(tmp_path, search, methods={"fedprox": {"mu": mu}}, title=title))
        )
        return bool(composed)

    assert anew(0.1, [0.2])
    assert not anew(0.1, [0.2]) and not anew(0.1, [0.2], "Another title")
    assert anew(0.3, [0.2]) and anew(0.3, [0.4])
    assert not anew(0.3, [0.4])
    plain_closure = checks.fingerprint.of_closure
    asked: list[set[str]] = []

    def other(files: tuple[Path, ...]) -> str:
        asked.append({file.stem for file in files})
        return plain_closure(files) + "changed"

    monkeypatch.setattr(checks.fingerprint, "of_closure", other)
    assert anew(0.3, [0.4])
    assert all("fedprox" in names and "fednova" not in names for names in asked)


def test_a_fault_in_the_other_process_ends_this_one_with_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = load(settle(tmp_path))
    called: list[list[str]] = []
    status = 0

    def run(command: list[str], **_: object) -> SimpleNamespace:
        called.append(command)
        return SimpleNamespace(returncode=status)

    monkeypatch.setattr(subprocess, "run", run)
    checks.check_methods_apart(bench)
    assert [command[-1] for command in called] == ["fedrepro.workflow.checks"]
    status = 2
    with pytest.raises(SystemExit, match="2"):
        checks.check_methods_apart(bench)
    checks.check_methods(bench)  # as the other process does
    checks.check_methods_apart(bench)
    assert len(called) == 2  # what has been checked needs no other process
    for written in (True, False):
        monkeypatch.setattr(checks.facts, "are_written", lambda _, written=written: written)
        if written:
            checks.learn_methods_apart()
        else:
            with pytest.raises(SystemExit, match="2"):
                checks.learn_methods_apart()
    assert len(called) == 3


def test_inputs_that_a_search_may_have_saw_no_client_s_samples(tmp_path: Path) -> None:
    """Those of the server's own samples, which clients do not have; at each scale."""
    plain = EXPERIMENT["settings"]["s"]
    at_server = {"scheme": "at_server", "share": 0.5}
    natural = {**plain["partition"], "server": 0.5}
    settings = {
        "s": plain | {
            "partition": natural,
            "inputs": {"unlabelled": {"setting": "made", "method": "fedavg", "seed": 1}},
        },
        "made": plain | {"partition": at_server, "evaluate": {}},
    }  # fmt: skip
    searched = {"methods": [{"method": "feddf", "grid": {"server_rate": [2.0]}}]}
    checks.check_given(load(settle(tmp_path, searched, settings=settings)))
    settings["made"] = plain | {"partition": natural}
    with pytest.raises(UserError, match=r"search\.grid: feddf_.*: 'unlabelled':"):
        checks.check_given(load(settle(tmp_path, searched, settings=settings)))


def test_values_that_config_yaml_has_itself_override_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Snakefile that includes ours passes all of its configuration on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(OVERRIDES, "{}")
    given = {"scale": "paper", "threads": 2}
    Path("config").mkdir()
    for said, left in (
        ("threads: 2\n", {"scale": "paper"}),
        ("scale: paper\nthreads: 2\n", {}),
        ("scale: demo\nthreads: 2\n", {"scale": "paper"}),
    ):
        Path("config/config.yaml").write_text(said)
        assert checks.overrides_of(given).model_dump(exclude_none=True) == left
        assert json.loads(os.environ[OVERRIDES]) == left  # for the commands of jobs
    for said in ("threads: 3\n", "[a, list]"):
        Path("config/config.yaml").write_text(said)
        with pytest.raises(UserError) as error:
            checks.overrides_of(given)
        assert error.value.key == "threads"


def test_a_key_without_a_value_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of `--config scale=$SCALE` with no such variable: all was made at the configured scale."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        checks.overrides_of({"scale": None})
    assert (error.value.code, error.value.key) == ("value", "scale")


@pytest.mark.parametrize("name", ["a{x}", "a{", "b}c"])
def test_rules_in_a_place_that_snakemake_takes_for_a_pattern_are_refused(name: str) -> None:
    checks.refuse_braces()
    checks.refuse_braces(Path("/a 50% 'q' [1] ü/workflow/rules"))
    with pytest.raises(UserError):
        checks.refuse_braces(Path("/home") / name / "workflow/rules")
