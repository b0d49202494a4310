"""Hyperparameters on the command line: another run, filed under a name that says them."""

import argparse

import pytest

from fedrepro.cli import run as command
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import RunKey
from fedrepro.support.errors import UserError

SETTING = "ima/fmnist-shards2-demo"


def requested(*arguments: str) -> tuple[RunKey, RunSpec]:
    parser = argparse.ArgumentParser()
    command.add_run(parser)
    workbench, run = command.requested(parser.parse_args([SETTING, *arguments, "--seed", "1"]))
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
    ("arguments", "line"),
    [
        (("fedprox", "--set", "nu=1"), r"--set: 'nu': expected one of .*fedprox.mu.*mean 'mu'\?"),
        (("fedavg", "--set", "ima.window=1"), r"--set: 'ima.window': expected one of fedavg."),
        (("fedprox", "--set", "mu"), "--set: 'mu': expected NAME=VALUE"),
        (("fedprox", "--set", "mu=[1]"), r"--set mu: '\[1\]': expected a number, a word"),
        (("fedprox", "--set", "mu=1", "--set", "mu=2"), "--set: 'mu=2': expected NAME=VALUE, each"),
        (
            ("fedprox", "--set", "mu=1", "--set", "fedprox.mu=2"),
            "'fedprox.mu': expected one",
        ),
        (("fedprix", "--set", "mu=1"), "METHOD: 'fedprix': expected .*did you mean 'fedprox' or "),
        (("fedprox_nu0.5", "--set", "mu=1"), "expected fedprox with values .* mean 'mu'"),
        (
            ("ima+fedprox_mu0.5", "--set", "mu=0.1"),
            "--set mu: 0.1: expected none: the name fedprox_mu0.5 says 0.5",
        ),
        (("fedprox_mu0.1", "--set", "fedprox_mu0.1.mu=1"), "the name fedprox_mu0.1 says 0.1"),
        (("fedadam", "--set", "lr=1e-119"), "expected values that make a name of at most"),
    ],
)
def test_what_is_none_is_refused(arguments: tuple[str, ...], line: str) -> None:
    with pytest.raises(UserError, match=line):
        requested(*arguments)
