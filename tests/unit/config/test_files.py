"""What is wrong in config/ is said in one line that names file, key, value and expectation."""

import re
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedrepro.config.config_file import Overrides
from fedrepro.config.experiment import EXPERIMENTS
from fedrepro.config.loading import load
from fedrepro.config.workbench import Workbench
from fedrepro.support.errors import UserError
from fedrepro.support.packaged import CONFIG
from fedrepro.support.typed_yaml import WHOLE_FILE, read_yaml, validate
from support.places import ROOT
from support.refusals import Fault, refused

IMA = Path("config/experiments/ima.yaml")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "config", tmp_path / "config")
    return tmp_path


def edit(root: Path, old: str, new: str, file: Path = IMA) -> None:
    """Replace a text in a file once."""
    path = root / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def fault(root: Path, old: str, new: str, file: Path = IMA) -> str:
    """The line that loading gives after one replacement in a file."""
    edit(root, old, new, file)
    with pytest.raises(UserError) as caught:
        load(root)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "rounds: 300",
            "rounds: -3",
            "settings.fmnist-shards2.rounds: -3: expected a whole number of at least 1",
        ),
        (
            "rounds: 300",
            "rounds: true",
            "settings.fmnist-shards2.rounds: True: expected a whole number of at least 1",
        ),
        (
            "    rounds: 300\n",
            "",
            "settings.fmnist-shards2.rounds, settings.fmnist-dirichlet0.1.rounds, "
            "settings.fmnist-shards2-bfloat16.rounds, "
            "settings.fmnist-dirichlet0.1-bfloat16.rounds, "
            "settings.cifar100-vgg-pachinko.rounds: missing: expected values",  # they extend it
        ),
        (
            "participation: 0.1",
            "participation: 0",
            "settings.fmnist-shards2.participation: 0: expected a number above 0 and at most 1",
        ),
        (
            "participation: 0.1",
            "participation: 1.5",
            "settings.fmnist-shards2.participation: 1.5: expected a number above 0 and at most 1",
        ),
        (
            "lr: 0.01, momentum",
            "lr: .nan, momentum",
            "settings.fmnist-shards2.optimizer.lr: nan: expected a finite number above 0",
        ),
        (
            "dataset: fmnist",
            "dataset: fminst",
            "settings.fmnist-shards2.dataset: 'fminst': expected a data set of "
            "config/datasets.yaml; did you mean 'fmnist'?",
        ),
        (
            "clients: 100,",
            "clients: 0,",
            "settings.fmnist-shards2.partition.clients: 0: expected a whole number of at least 1",
        ),
        (
            'setting: "{named}-shards2"',
            'setting: "{named}-shards3"',
            "tables.table_1.rows.FMNIST, #C=2.setting: 'fmnist-shards3': expected a setting of "
            "this file; did you mean 'fmnist-shards2'?",
        ),
        (
            "extends: fmnist-shards2\n",
            "extends: fmnist-shard2\n",
            "settings.fmnist-dirichlet0.1.extends: 'fmnist-shard2': expected a setting of this "
            "file; did you mean 'fmnist-shards2'?",
        ),
        (
            "extends: fmnist-shards2\n",
            "extends: fmnist-dirichlet0.1\n",
            "settings.fmnist-dirichlet0.1.extends: 'fmnist-dirichlet0.1': expected a setting that "
            "does not extend this one",
        ),
        ("system: ima", "system: imo", "system: 'imo': expected the file's name, 'ima'"),
        (
            "method: fedavg,",
            "method: fed avg,",
            "tables.table_1.columns.FedAvg.method: 'fed avg': expected method names joined by '+', "
            "such as ima+fedprox",
        ),
        (
            "{ name: FedNova, method: fednova,",
            "{ name: FedNova, method: 3,",
            "tables.table_1.columns.FedNova.method: 3: expected method names joined by '+', "
            "such as ima+fedprox",
        ),
        (
            "{ name: FedASAM, method: fedasam,",
            "{ name: FedASAM, methd: fedasam,",
            "tables.table_1.columns.0.for.2: {'name': 'FedASAM', 'methd': 'fedasam', 'demo': "
            "'fedasam'}: expected lists of values by name, or a list of mappings with the same "
            "names",
        ),
        (
            "window: 5",
            "window: [5]",
            "methods.ima.window: [5]: expected a number, a word, true, false or null",
        ),
    ],
)
def test_wrong_value(copy: Path, old: str, new: str, line: str) -> None:
    assert fault(copy, old, new) == f"{IMA}: {line}"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "rounds: 300",
            "roundz: 300",
            Fault(code="unknown_key", key="settings.fmnist-shards2.roundz", near="rounds"),
        ),
        (
            "scheme: shards,",
            "scheme: shard,",
            Fault(key="settings.fmnist-shards2.partition.scheme", value="shard", near="shards"),
        ),
        (
            "clients: 100,",
            "clientz: 100,",
            Fault(code="unknown_key", key="partition.clientz", near="clients"),
        ),
        (
            "model: ima_fmnist_cnn",
            "model: ima_fmnist",
            Fault(key="settings.fmnist-shards2.model", value="ima_fmnist", near="ima_fmnist_cnn"),
        ),
    ],
)
def test_wrong_name_with_the_nearest(copy: Path, old: str, new: str, fault: Fault) -> None:
    edit(copy, old, new)
    with refused(file=str(IMA), **fault):
        load(copy)


def test_not_yaml(copy: Path) -> None:
    line = fault(copy, "rounds: 300", "rounds: [300")
    assert line.startswith(f"{IMA}:")
    assert "not valid YAML" in line


def test_key_given_twice(copy: Path) -> None:
    edit(copy, "rounds: 300\n", "rounds: 300\n    rounds: 200\n")
    with refused("invalid_yaml", file=str(IMA), names="'rounds'") as raised:
        load(copy)
    first = (copy / IMA).read_text(encoding="utf-8").split("rounds: 300\n")[0].count("\n") + 1
    assert str(raised.value).endswith(f" line {first}")


def test_empty_and_missing_files(copy: Path) -> None:
    (copy / IMA).write_text("", encoding="utf-8")
    with refused(key=WHOLE_FILE, value=None):
        load(copy)
    for path in (copy / EXPERIMENTS).iterdir():
        path.unlink()
    with refused(names="system"):
        load(copy)
    (copy / CONFIG).unlink()
    with refused(names=("config/config.yaml", "such")):
        load(copy)


def test_files_that_editors_and_macos_leave_are_none_of_ours(copy: Path) -> None:
    before = set(load(copy).experiments)
    (copy / "methods").mkdir()
    with (copy / CONFIG).open("a", encoding="utf-8") as file:
        file.write("plugins: {methods: methods}\n")
    for name in ("config/experiments/.#ima.yaml", "methods/.#mine.py"):
        (copy / name).symlink_to("someone@elsewhere.17")  # of Emacs
    for name in ("config/experiments/._ima.yaml", "methods/._mine.py"):
        (copy / name).write_bytes(b"\0\5\x16\7\xff")
    bench = load(copy)
    assert set(bench.experiments) == before and not bench.plugins.names("methods")


def test_an_experiment_with_another_ending_is_not_passed_over(copy: Path) -> None:
    shutil.copy(copy / IMA, copy / IMA.with_name("other.yml"))
    with refused("value", file="config/experiments/other.yml"):
        load(copy)
    (copy / IMA.with_name("other.yml")).unlink()
    (copy / "config/compact").mkdir(exist_ok=True)
    (copy / "config/compact/ima.yml").write_text("tables: {}\n", encoding="utf-8")
    with refused("value", file="config/compact/ima.yml"):
        load(copy)


def test_exponent_without_a_point_is_a_number(copy: Path) -> None:
    path = copy / IMA
    path.write_text(path.read_text(encoding="utf-8").replace("mu: 0.001", "mu: 1e-3"))
    values = load(copy).run_spec("ima/fmnist-shards2", "fedprox_mu0.001", 1).description()
    assert values["hyperparameters"] == {"fedprox": {"mu": 0.001}}


def test_config_file_faults(copy: Path) -> None:
    edit(copy, "scale: demo", "scale: dmo", CONFIG)
    choices = ("compact", "demo", "paper")
    with refused("value", file=str(CONFIG), key="scale", value="dmo", names=choices, near="demo"):
        load(copy)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"scale": "papre"}, Fault(code="value", key="scale", value="papre", near="paper")),
        (
            {"scal": "paper"},
            Fault(code="unknown_key", key="scal", names=("device", "executor"), near="scale"),
        ),
        (
            {"device": "gpu"},
            Fault(code="value", key="device", value="gpu", names=("cpu", "cuda:<number>")),
        ),
    ],
)
def test_wrong_overrides(given: dict[str, str], fault: Fault) -> None:
    with refused(file="--config", **fault):
        validate(Overrides, given, "--config")


def test_overrides_replace_the_file(copy: Path) -> None:
    bench = load(copy, Overrides(scale="paper"))
    assert bench.config.scale == "paper"
    assert bench.table("ima", "table_1").scale == "paper"


@pytest.mark.parametrize(
    ("ask", "key", "near"),
    [
        (lambda bench: bench.setting("ima/fmnist-shard2"), "setting", "ima/fmnist-shards2"),
        (lambda bench: bench.table("imma", "table_1"), "system", "ima"),
        (lambda bench: bench.table("ima", "table_11"), "tables", "table_1"),
        (lambda bench: bench.tables("papr"), "scale", "paper"),
        (lambda bench: bench.tables(""), "scale", None),
    ],
)
def test_unknown_names(ask: Callable[[Workbench], Any], key: str, near: str | None) -> None:
    with refused("value", key=key, near=near):
        ask(load(ROOT))


def test_all_missing_keys_are_named_at_once(copy: Path) -> None:
    (copy / "config/experiments/mine.yaml").write_text(
        "system: mine\nsettings:\n  s: {dataset: mnist5k, model: twonn, rounds: 3}\n",
        encoding="utf-8",
    )
    keys = ("partition", "participation", "epochs", "batch_size", "optimizer")
    of_setting = (f"settings.s.{key}" for key in keys)
    with refused("missing", key=", ".join(("title", "paper", *of_setting))):
        load(copy)


ROWS = [{"label": "a", "setting": "s"}]
COLUMNS = [{"label": "b", "method": "fedavg"}]
ONE_OF_EACH = {
    "system": "mine",
    "title": "All kinds",
    "paper": "none",
    "seeds": {"demo": [0], "paper": [2**32 - 1]},
    "settings": {
        "s": {
            "dataset": "mnist5k", "partition": {"scheme": "iid", "clients": 2}, "model": "twonn",
            "rounds": 1, "participation": 1, "epochs": 1, "batch_size": 5, "optimizer": {"lr": 0.1},
        }
    },
    "tables": {"t": {"title": "x", "rows": ROWS, "columns": COLUMNS}},
    "figures": {
        "lines": {"kind": "lines", "title": "x", "rows": ROWS, "columns": COLUMNS},
        "bars": {"kind": "bars", "title": "x", "rows": ROWS, "columns": COLUMNS},
        "hills": {"kind": "landscape", "title": "x", "setting": "s", "columns": COLUMNS},
        "mixed": {"kind": "mixtures", "title": "x", "panels": ROWS, "columns": COLUMNS},
        "regrets": {"kind": "regret", "title": "x", "method": "aaggff_d", "panels": ROWS},
        "heat": {
            "kind": "heat_map", "title": "x", "setting": "s",
            "x": {"label": "x", "values": [1]}, "y": {"label": "y", "values": [1]},
            "panels": [{"label": "p", "methods": [["fedavg"]]}],
        },
    },
}  # fmt: skip


def lists_in(node: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(node, list):
        yield path
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from lists_in(value, (*path, key))


@pytest.mark.parametrize("path", [(), *lists_in(ONE_OF_EACH)], ids=".".join)
def test_one_entry_is_enough_and_none_is_refused(tmp_path: Path, path: tuple[str, ...]) -> None:
    experiment = deepcopy(ONE_OF_EACH)
    place: Any = experiment
    for key in path[:-1]:
        place = place[key]
    if path:
        place[path[-1]] = []
    (tmp_path / "config/experiments").mkdir(parents=True)
    shutil.copy(ROOT / "config/datasets.yaml", tmp_path / "config")
    (tmp_path / "config/config.yaml").write_text("{}\n")
    (tmp_path / "config/experiments/mine.yaml").write_text(yaml.safe_dump(experiment))
    if not path:
        assert load(tmp_path).seeds("paper", "mine") == (2**32 - 1,)
        return
    with pytest.raises(UserError, match=re.escape(".".join(path))):
        load(tmp_path)


@pytest.mark.parametrize("seed", [-1, 2**32, 0.5, True])
def test_seeds_are_those_that_every_generator_takes(copy: Path, seed: object) -> None:
    config = copy / "config/config.yaml"
    config.write_text(yaml.safe_dump({"seeds": {"demo": [seed]}}))
    with refused(key="seeds.demo.0", names="4294967295"):
        load(copy)


@pytest.mark.parametrize("number", ["9" * 5_000, "0x" + "f" * 5_000])
def test_a_whole_number_without_end_is_one_line(tmp_path: Path, number: str) -> None:
    """Python reads the second, but writes neither."""
    path = tmp_path / "config.yaml"
    path.write_text(f"scale: demo\nthreads: {number}\n", encoding="utf-8")
    with refused("invalid_yaml", file="config.yaml", names=("config.yaml:2:10", "1000")):
        read_yaml(path, Path("config.yaml"))
