"""Hyperparameters on the command line: another run, filed under a name that says them."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from fedrepro.cli import arguments as command
from fedrepro.cli import check
from fedrepro.cli.listing import list_methods
from fedrepro.cli.main import main, parser
from fedrepro.config.experiment import without_values
from fedrepro.config.loading import load
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import RunKey
from fedrepro.report.cells.league import matches_of
from fedrepro.workflow.league import refuse_unknown
from support.places import ROOT
from support.refusals import Fault, refused
from support.report_world import make_world

SETTING = "ima/fmnist-shards2-demo"


def requested(*arguments: str) -> tuple[RunKey, RunSpec]:
    words = ["run", SETTING, *arguments, "--seed", "1"]
    workbench, run = command.requested(parser().parse_args(words))
    return run, workbench.run_spec(run.setting, run.method, run.seed)


@pytest.mark.parametrize(
    ("arguments", "name", "values"),
    [
        (("fedprox", "--set", "mu=0.3"), "fedprox_mu0.3", {"fedprox": {"mu": 0.3}}),
        (("fedprox", "--set", "fedprox.mu=3e-1"), "fedprox_mu0.3", {"fedprox": {"mu": 0.3}}),
        # As an experiment file already calls it.
        (("fedprox", "--set", "mu=0.1"), "fedprox_mu0.1", {"fedprox": {"mu": 0.1}}),
        (
            ("fedprox+fedadam", "--set", "fedadam.lr=0.5", "--set", "halved=true"),
            "fedprox_halvedtrue+fedadam_lr0.5",
            {"fedprox": {"halved": True}, "fedadam": {"lr": 0.5}},
        ),
    ],
)
def test_it_is_another_run(
    arguments: tuple[str, ...], name: str, values: dict[str, dict[str, object]]
) -> None:
    plain, before = requested(arguments[0])
    run, spec = requested(*arguments)
    assert (run.method, spec.method, spec.composition) == (name, name, arguments[0])
    assert run.folder != plain.folder and spec.digest != before.digest
    for part, own in values.items():
        assert spec.hyperparameters[part] == {**before.hyperparameters[part], **own}


def test_what_is_not_set_stays_as_the_experiment_has_it() -> None:
    _, before = requested("ima+fedprox")
    run, spec = requested("ima+fedprox", "--set", "window=3")
    assert run.method == "ima_window3+fedprox"
    assert before.hyperparameters["ima"]["start"] == 0.75
    assert spec.hyperparameters["ima"] == {**before.hyperparameters["ima"], "window": 3}


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (
            ("fedprox", "--set", "nu=1"),
            {"key": "--set", "value": "nu", "names": ("fedprox.mu", "'mu'", "mean")},
        ),
        (("fedavg", "--set", "ima.window=1"), {"key": "--set", "value": "ima.window"}),
        (("fedprox", "--set", "mu"), {"key": "--set", "value": "mu", "names": ("NAME", "VALUE")}),
        (
            ("fedprox", "--set", "mu=[1]"),
            {"key": "--set mu", "value": "[1]", "names": ("--set", "mu", "word")},
        ),
        (
            ("fedprox", "--set", "mu=1", "--set", "mu=2"),
            {"key": "--set", "value": "mu=2", "names": ("NAME", "VALUE")},
        ),
        (
            ("fedprox", "--set", "mu=1", "--set", "fedprox.mu=2"),
            {"key": "--set", "value": "fedprox.mu"},
        ),
        (
            ("fedprix", "--set", "mu=1"),
            {"key": "METHOD", "value": "fedprix", "names": ("'fedprox'", "mean")},
        ),
        (
            ("fedprox_nu0.5", "--set", "mu=1"),
            {"key": "METHOD", "value": "fedprox_nu0.5", "names": ("'mu'", "fedprox")},
        ),
        (
            ("ima+fedprox_mu0.5", "--set", "mu=0.1"),
            {
                "key": "--set mu",
                "value": 0.1,
                "names": ("--set", "mu", "none", "fedprox_mu0.5", "name"),
            },
        ),
        (
            ("fedprox_mu0.1", "--set", "fedprox_mu0.1.mu=1"),
            {"key": "--set fedprox_mu0.1.mu", "value": 1, "names": "fedprox_mu0.1"},
        ),
        (("fedadam", "--set", "lr=1e-119"), {"key": "--set", "names": "values"}),
    ],
)
def test_what_is_none_is_refused(arguments: tuple[str, ...], fault: Fault) -> None:
    with refused(**fault):
        requested(*arguments)


@pytest.mark.parametrize(
    ("values", "suffix", "changed"),
    [
        (["optimizer.lr=0.3"], "_optimizer.lr0.3", {"optimizer": {"lr": 0.3}}),
        (["lr=3e-1"], "_optimizer.lr0.3", {"optimizer": {"lr": 0.3}}),
        (["rounds=7", "momentum=0.5"], "_optimizer.momentum0.5_rounds7",
         {"rounds": 7, "optimizer": {"momentum": 0.5}}),
        (["stop.at=90", "patience=3"], "_stop.at90_stop.patience3",
         {"stop": {"measure": "accuracy", "at": 90.0, "patience": 3}}),
        (["attack.kind=sign_flip", "share=0.2"], "_attack.kindsign_flip_attack.share0.2",
         {"attack": {"kind": "sign_flip", "share": 0.2, "scale": 1.0}}),
        (["model=mcmahan_cnn", "epochs=1"], "_epochs1_modelmcmahan_cnn",
         {"model": "mcmahan_cnn", "epochs": 1}),
        (["augment=flip"], "_augmentflip", {"augment": "flip"}),
    ],
)  # fmt: skip
def test_a_key_of_the_setting_makes_a_run_of_its_own(
    values: list[str], suffix: str, changed: dict[str, object]
) -> None:
    """In a setting whose name says it, which every other command understands."""
    plain, before = requested("fedprox")
    options = [word for value in values for word in ("--set", value)]
    run, spec = requested("fedprox", "--set", "mu=0.3", *options)
    assert (run.setting, run.method) == (SETTING + suffix, "fedprox_mu0.3")
    old, new = before.description(), spec.description()
    for key, own in changed.items():
        was = old.pop(key, {})
        expected = {**was, **own} if isinstance(own, dict) and isinstance(was, dict) else own
        assert new.pop(key) == expected != was
    for key in ("setting", "method", "hyperparameters"):
        assert old.pop(key) != new.pop(key)
    assert old == new
    found = load(ROOT).run_spec(run.setting, run.method, 1)
    assert found.digest == spec.digest != before.digest
    assert plain.setting == SETTING


def test_a_name_of_both_is_the_hyperparameter_s() -> None:
    run, spec = requested("fedprox+fedadam", "--set", "lr=0.5", "--set", "optimizer.lr=0.2")
    assert run.setting == SETTING + "_optimizer.lr0.2" and spec.setting.optimizer.lr == 0.2
    assert spec.hyperparameters["fedadam"]["lr"] == 0.5


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (
            "clients=5",
            {
                "key": "--set",
                "value": "clients",
                "names": ("partition.clients", "evaluate.clients"),
            },
        ),
        ("optimizer.rate=1", {"key": "--set", "value": "optimizer.rate", "names": "mean"}),
        ("note=x", {"key": "--set", "value": "note"}),  # not part of a run
        ("optimizer=sgd", {"key": "--set", "value": "optimizer"}),
        ("lr=-0.1", {"key": "lr", "value": -0.1, "names": ("optimizer", "0")}),
        ("participation=3", {"key": "participation", "value": 3, "names": ("0", "1")}),
        ("attack.kind=sign_flip", {"code": "missing", "key": "attack.share", "names": "missing"}),
        (
            "model=a_rounds5",
            {"key": "--set", "value": "ima/fmnist-shards2-demo_modela_rounds5", "names": "numbers"},
        ),
        ("dataset=mnist_5000", {"key": "dataset", "value": "mnist_5000"}),
    ],
)
def test_a_key_that_is_none_is_refused(value: str, fault: Fault) -> None:
    with refused(**fault):
        requested("fedavg", "--set", value)


@pytest.mark.parametrize(
    "keys", [("mu", "fedprox.mu"), ("fedprox.mu", "mu"), ("lr", "optimizer.lr")]
)
def test_a_key_that_is_given_in_two_ways_is_refused(keys: tuple[str, str]) -> None:
    sets = [word for at, key in enumerate(keys) for word in ("--set", f"{key}=0.{at + 1}")]
    with refused(names=(keys[1], "once")):
        requested("fedprox", *sets)


def test_a_name_that_a_setting_has_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values are no fault then."""
    monkeypatch.chdir(make_world(tmp_path))
    file, name = Path("config/experiments/ima.yaml"), SETTING.partition("/")[2]
    other = f"settings:\n  {name}_rounds7: {{ extends: {name}, rounds: 8 }}\n"
    text = file.read_text(encoding="utf-8").replace("settings:\n", other, 1)
    file.write_text(text, encoding="utf-8")
    assert requested("fedavg", "--set", "rounds=6")[1].setting.rounds == 6
    with refused(key="--set", value=f"{SETTING}_rounds7", names="setting") as fault:
        requested("fedavg", "--set", "rounds=7")
    assert "numbers" not in str(fault.value), "7 is one"


def test_every_command_reads_the_name_that_values_make(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of a run, of a method and of the league."""
    run, spec = requested("fedprox", "--set", "mu=0.3")
    again, same = requested(run.method)
    assert (again, same.hyperparameters) == (run, spec.hyperparameters)
    bench, both = load(ROOT), f"ima+{run.method}+fedadam_lr0.5"
    refuse_unknown(bench, matches_of(bench), both)
    values = {"fedprox": {"mu": 0.3}, "fedadam": {"lr": 0.5}}
    assert without_values(both) == ("ima+fedprox+fedadam", values)
    assert without_values("fedprox_mu0.3@released")[0] == "fedprox@released"
    trial = check.trial_of(both)
    assert trial.make.args[0].inner.mu == 0.3 and trial.make.args[2] == 0.5  # type: ignore[attr-defined]
    assert main(["methods", run.method, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hyperparameters"]["mu"] == 0.3
    for wrong in ("fedprox_nu0.3", "fedprox_mu0.30", "fedprox_mu", "fedprx_mu0.3", "fedprox_"):
        assert without_values(wrong) == (wrong, {})
        for refuse in (
            lambda name: requested(name, "--set", "mu=1"),
            lambda name: refuse_unknown(bench, matches_of(bench), name),
            lambda name: check.handle(Namespace(method=name)),
            lambda name: list_methods(Namespace(name=name, json=False)),
        ):
            with refused("value", value=wrong):
                refuse(wrong)
