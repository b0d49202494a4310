"""What a run asks a cluster for, and where that stands."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.resources import Resources as Defaults

from fedrepro.config.config_file import Resources
from fedrepro.config.loading import load
from fedrepro.config.workbench import Workbench
from fedrepro.workflow.resources import (
    ESTIMATES,
    IN_A_RULE,
    RunResources,
    estimated,
    read_estimates,
    save_estimates,
    with_margins,
)
from support.places import ROOT
from support.project import CONFIG, EXPERIMENT
from support.refusals import Fault, refused

STATED = "    optimizer: {lr: 0.1}\n"
RUN = SimpleNamespace(setting="ima/tiny", method="fedavg", seed="1")
PROFILE = ["mem_mb=4000 * 2 ** (attempt - 1)", "runtime=240", "slurm_partition=cpu"]


class World:
    """A configuration on disk, which is read anew for every question."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "config/experiments").mkdir(parents=True)
        catalogue = (ROOT / "config/datasets.yaml").read_text(encoding="utf-8")
        (root / "config/datasets.yaml").write_text(catalogue, encoding="utf-8")
        self.write()

    def write(self, setting: str = "", config: str = "") -> Workbench:
        """The workbench of what a setting and config.yaml say."""
        text = EXPERIMENT.replace(STATED, STATED + setting)
        (self.root / "config/experiments/ima.yaml").write_text(text, encoding="utf-8")
        (self.root / "config/config.yaml").write_text(CONFIG + config, encoding="utf-8")
        return load(self.root)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    return World(tmp_path)


def asked(bench: Workbench, attempt: int = 1, setting: str = RUN.setting) -> dict[str, Any]:
    """All that a run asks for, as rule ``run`` has it; by the profile's defaults."""
    run = SimpleNamespace(setting=setting, method="fedavg", seed="1")
    defaults = Defaults.parser_factory(defaults="bare", allow_expressions=True)(PROFILE)
    context = {
        "input": [], "attempt": attempt, "threads": 1, "rulename": "run", "async_run": None,
    }  # fmt: skip
    functions = RunResources(bench, defaults).by_name()

    def answer(name: str, in_a_rule: str) -> Any:
        if in_a_rule in functions:
            return functions[in_a_rule](run, **context)
        default = defaults.get("mem_mb" if name == "mem_mb" else in_a_rule)  # as Snakemake does
        return default and default.evaluate(run, **context).value

    found = {name: answer(name, in_a_rule) for name, in_a_rule in IN_A_RULE.items()}
    gpu = functions["gpu"]
    return {**found, "gpu": gpu(run) if callable(gpu) else gpu}


DEFAULT = {"mem_mb": 4000, "runtime": 240, "cpus": None, "partition": "cpu", "gpu": 0}


def test_what_nobody_states_is_the_profile_s(world: World) -> None:
    assert asked(world.write()) == DEFAULT
    assert asked(world.write(), attempt=2)["mem_mb"] == 8000  # as the profile has it
    nothing = RunResources(world.write(), Defaults({})).resource("mem_mb")
    assert nothing(RUN, input=[], attempt=2) is None  # then the cluster's own default counts


def test_of_what_nobody_states_there_is_no_function(world: World) -> None:
    """Each would be asked for every one of thousands of runs."""
    assert RunResources(world.write(), Defaults({})).by_name() == {"gpu": 0}
    bench = world.write("    resources: {cpus: 4}\n")
    stated = RunResources(bench, Defaults({})).by_name()
    assert set(stated) == {"gpu", "cpus_per_task"}


def test_of_several_settings_one_may_state_what_it_asks_for(world: World) -> None:
    more = "  other: {extends: tiny, resources: {runtime: 60, cpus: 2}}\n  last: {extends: tiny}\n"
    bench = world.write(more)
    for setting in ("ima/tiny", "ima/last"):
        assert asked(bench, setting=setting) == DEFAULT
    stated = {**DEFAULT, "runtime": 60, "cpus": 2}
    assert asked(bench, setting="ima/other") == stated


def test_a_setting_comes_before_the_configuration(world: World) -> None:
    bench = world.write(
        "    resources: {partition: long, runtime: 60, cpus: 4}\n",
        "resources: {partition: short, mem_mb: 1000}\n",
    )
    stated = {"mem_mb": 1000, "runtime": 60, "cpus": 4, "partition": "long", "gpu": 0}
    assert asked(bench) == stated
    assert asked(bench, attempt=3) == {**stated, "mem_mb": 4000, "runtime": 240}


@pytest.mark.parametrize(
    ("config", "gpus"),
    [("", 0), ("device: cuda\n", 1), ("device: 'cuda:0'\nresources: {gpu: 2}\n", 2)],
)
def test_gpus_are_for_runs_on_them(world: World, config: str, gpus: int) -> None:
    assert asked(world.write(config=config))["gpu"] == gpus
    stated = world.write("    resources: {gpu: 0}\n", config)
    assert asked(stated)["gpu"] == 0


def test_a_plan_s_estimate_comes_before_the_profile(world: World) -> None:
    bench = world.write()
    digest = bench.run_spec("ima/tiny", "fedavg", 1).digest
    # 600 MB and half an hour: half as much more and 500 MB, three times as long and 10 minutes.
    estimate = with_margins(memory=600e6, seconds=1800)
    assert estimate == Resources(mem_mb=1400, runtime=100)
    config = bench.config
    save_estimates(world.root, config, {"another": Resources(mem_mb=1, runtime=1)})
    save_estimates(world.root, config, {digest: estimate})
    assert set(read_estimates(world.root, config)) == {"another", digest}
    assert asked(world.write()) == {**DEFAULT, "mem_mb": 1400, "runtime": 100}
    assert asked(world.write(), attempt=2)["runtime"] == 200
    assert asked(world.write("    resources: {runtime: 5}\n"))["runtime"] == 5
    of_a_later_plan = Resources(mem_mb=700, runtime=30)
    save_estimates(world.root, config, {digest: of_a_later_plan})
    assert asked(world.write()) == {**DEFAULT, "mem_mb": 700, "runtime": 30}
    assert read_estimates(world.root, config)["another"] == Resources(mem_mb=1, runtime=1)
    # Of another device, or of a run that is another by now, it says nothing.
    assert asked(world.write(config="threads: 2\n")) == DEFAULT
    assert asked(world.write("    lr_decay: 0.5\n")) == DEFAULT


def test_a_plan_s_estimates_are_those_of_all_devices_of_a_kind(world: World) -> None:
    """Not of the one on which it was made."""
    plans = {device: world.write(config=f"device: '{device}'\n").config
             for device in ("cpu", "cuda", "cuda:1")}  # fmt: skip
    known = {"digest": Resources(mem_mb=700, runtime=30)}
    for made, used in itertools.permutations(plans, 2):
        (world.root / ESTIMATES).unlink(missing_ok=True)
        save_estimates(world.root, plans[made], known)
        alike = "cpu" not in (made, used)
        assert read_estimates(world.root, plans[used]) == (known if alike else {}), (made, used)


def test_of_each_run_whose_time_is_known_the_estimate_is_by_its_own_hash() -> None:
    costs: Any = [
        SimpleNamespace(run="a", memory=600.5e6, seconds=1815.0),
        SimpleNamespace(run="b", memory=2e9, seconds=None),
        SimpleNamespace(run="c", memory=0, seconds=0.0),
    ]
    bench: Any = SimpleNamespace(spec_of=lambda run: SimpleNamespace(digest=f"hash-{run}"))
    assert estimated(bench, costs) == {
        "hash-a": Resources(mem_mb=1401, runtime=101), "hash-c": Resources(mem_mb=500, runtime=10)
    }  # fmt: skip


def test_a_damaged_estimate_is_one_line(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    bench = world.write()
    (world.root / ESTIMATES).parent.mkdir(parents=True)
    (world.root / ESTIMATES).write_text("[]")
    with pytest.raises(SystemExit):
        asked(bench)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "runs.json: damaged: " in said


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        (
            "memory",
            "1",
            Fault(code="unknown_key", names=("cpus", "gpu", "partition", "runtime"), near="mem_mb"),
        ),
        ("mem_mb", "4GB", Fault(code="value", value="4GB", names="1")),
        ("runtime", "0", Fault(code="value", value=0, names="1")),
        ("gpu", "-1", Fault(code="value", value=-1, names="0")),
        ("cpus", "1.5", Fault(code="value", value=1.5, names="1")),
        ("partition", "'a b'", Fault(code="value", value="a b")),
    ],
)
def test_what_is_wrong_is_one_line(world: World, key: str, value: str, fault: Fault) -> None:
    at = f"settings.tiny.resources.{key}"
    with refused(file="config/experiments/ima.yaml", key=at, **fault) as raised:
        world.write(f"    resources: {{{key}: {value}}}\n")
    assert "\n" not in str(raised.value)


def test_resources_are_no_part_of_a_run(world: World) -> None:
    plain, stated = world.write(), world.write("    resources: {mem_mb: 1, partition: a}\n")
    first, second = (bench.run_spec("ima/tiny", "fedavg", 1) for bench in (plain, stated))
    assert first.description() == second.description()


@pytest.mark.parametrize("key", Resources.model_fields)
def test_a_setting_has_what_it_states_and_else_what_all_have(key: str) -> None:
    """Nothing and null are the same."""
    values = {name: "long" if name == "partition" else 8 for name in Resources.model_fields}
    everywhere = Resources.model_validate(values)
    for own in ({}, {key: None}):
        assert Resources.model_validate(own).over(everywhere) == everywhere
    mine = "short" if key == "partition" else 3
    found = Resources.model_validate({key: mine}).over(everywhere)
    assert found.model_dump() == values | {key: mine}
    assert everywhere.over(Resources()) == everywhere
