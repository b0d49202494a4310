"""What an author of a method does wrong is one line, instead of a wrong number or a traceback."""

import re
from pathlib import Path

import pytest

from fedrepro.check import suite
from fedrepro.check.hooks import watched
from fedrepro.cli.check import trial_of
from fedrepro.cli.main import main
from fedrepro.config.loading import folders_here
from fedrepro.engine.round import begin
from fedrepro.methods import registry
from fedrepro.support.errors import UserError
from support import tiny_run
from support.refusals import Fault, refused
from support.worlds import federation

HEAD = """\
import itertools
import random
from collections import deque
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from fedrepro.engine import tree
from fedrepro.engine.method import Method, Wrapper
from fedrepro.methods.server.base import ServerOptimizer

"""

FROZEN = "@dataclass(frozen=True)\nclass Mine(Method):\n    "

Case = tuple[str, Fault]

LOADED: dict[str, Case] = {
    "syntax error": ("class Mine(Method)\n", {"code": "damaged", "file": "mine.py:14"}),
    "no dataclass": (
        "class Mine(Method):\n    mu: float = 0.1\n",
        {"file": "mine.py:14", "key": "Mine", "names": "@dataclass(frozen=True)"},
    ),
    "not frozen": (
        "@dataclass\nclass Mine(Method):\n    mu: float = 0.1\n",
        {"file": "mine.py", "names": "@dataclass(frozen=True)"},
    ),
    "no default": (
        FROZEN + "mu: float\n",
        {"code": "missing", "file": "mine.py:16", "key": "mu", "names": "mu: float = 0.1"},
    ),
    "no default in a wrapper": (
        "@dataclass(frozen=True)\nclass Mine(Wrapper):\n    mu: float\n",
        {"code": "missing", "file": "mine.py:16", "key": "mu"},
    ),
    "misspelt hook": (
        FROZEN + "def brodcast(self, ctx, server):\n        return {}\n",
        {"code": "unknown_key", "file": "mine.py:16", "key": "Mine.brodcast", "near": "broadcast"},
    ),
    "a hook of an earlier release": (
        FROZEN + "def weigh(self, ctx, updates):\n        return {}\n",
        {"code": "unknown_key", "file": "mine.py:16", "key": "Mine.weigh"},
    ),
    "misspelt hook of a server optimizer": (
        "@dataclass(frozen=True)\nclass Mine(ServerOptimizer):\n    def biuld(self): ...\n",
        {"code": "unknown_key", "file": "mine.py:16", "key": "Mine.biuld", "near": "build"},
    ),
    "misspelt hook of a class from which it inherits": (
        "class Shared:\n    def brodcast(self, ctx, server):\n        return {}\n\n\n"
        "@dataclass(frozen=True)\nclass Mine(Shared, Method):\n    mu: float = 0.1\n",
        {"code": "unknown_key", "file": "mine.py:15", "key": "Shared.brodcast"},
    ),
    "a function of what hooks get that nothing calls": (
        FROZEN + "def adjusted(self, ctx, amount):\n        return amount\n",
        {"code": "unknown_key", "file": "mine.py:16", "key": "Mine.adjusted"},
    ),
    "a hook without self": (
        FROZEN + "@staticmethod\n    def broadcast(ctx, server):\n        return {}\n",
        {"code": "value", "key": "Mine.broadcast"},
    ),
    "a method in place of a class method": (
        "@dataclass(frozen=True)\nclass Mine(Wrapper):\n    def refuses(self, inner): ...\n",
        {"code": "value", "file": "mine.py:16", "key": "Mine.refuses"},
    ),
    "misspelt class attribute": (
        FROZEN + "requirs: ClassVar[tuple[str, ...]] = ('generator',)\n",
        {"code": "unknown_key", "file": "mine.py:16", "key": "Mine.requirs", "near": "requires"},
    ),
    "too few parameters": (
        FROZEN + "def loss(self, ctx, message, params, batch):\n        return 0\n",
        {
            "file": "mine.py:16",
            "key": "Mine.loss",
            "value": "(self, ctx, message, params, batch)",
            "names": "loss(self, ctx, message, client_state, params, batch)",
        },
    ),
    "too many parameters": (
        FROZEN + "def broadcast(self, ctx, server, more):\n        return {}\n",
        {"file": "mine.py:16", "key": "Mine.broadcast", "value": "(self, ctx, server, more)"},
    ),
    "parameters in another order": (
        FROZEN + "def server_update(self, ctx, server, weights, updates):\n        return server\n",
        {
            "file": "mine.py:16",
            "key": "Mine.server_update",
            "value": "(self, ctx, server, weights, updates)",
        },
    ),
    "no method": (
        FROZEN + "server_update: float = 0.1\n",
        {
            "file": "mine.py:16",
            "key": "Mine.server_update",
            "names": "server_update(self, ctx, server, updates, weights)",
        },
    ),
    "global": (
        "seen = 0\n\n\ndef count():\n    global seen\n    seen += 1\n\n\n"
        + FROZEN
        + "mu: int = 0\n",
        {"file": "mine.py:18", "key": "seen", "names": ("`server`", "`client_state`")},
    ),
    "fails when it is imported": (
        "print(1 / 0)\n" + FROZEN + "mu: float = 0.1\n",
        {"code": "damaged", "file": "mine.py:14", "names": "ZeroDivisionError"},
    ),
}

PLAYED: dict[str, Case] = {
    "what was broadcast": (
        "def client_update(self, ctx, message, client_state, steps):\n"
        "        update, client_state = super().client_update(ctx, message, client_state, steps)\n"
        "        message['params']['head.weight'].add_(1)\n"
        "        return update, client_state\n",
        {"file": "mine.py:16", "key": "client_update", "names": "message[params/head.weight]"},
    ),
    "what was broadcast, behind autograd's back": (
        "def client_update(self, ctx, message, client_state, steps):\n"
        "        message['params']['head.weight'].data[0] += 1\n"
        "        return super().client_update(ctx, message, client_state, steps)\n",
        {"file": "mine.py:16", "key": "client_update", "names": "message[params/head.weight]"},
    ),
    "the server's state": (
        "def server_update(self, ctx, server, updates, weights):\n"
        "        server['params']['head.bias'] += 1\n"
        "        return super().server_update(ctx, server, updates, weights)\n",
        {"file": "mine.py:16", "key": "server_update", "names": "server[params/head.bias]"},
    ),
    "the server's dict": (
        "def server_update(self, ctx, server, updates, weights):\n"
        "        moved = super().server_update(ctx, server, updates, weights)\n"
        "        server['params'] = moved['params']\n"
        "        return server\n",
        {"file": "mine.py:16", "key": "server_update", "names": "new dicts"},
    ),
    "a client's state": (
        "def init_client(self, ctx, rng):\n"
        "        return {'seen': torch.zeros(1)}\n\n"
        "    def client_update(self, ctx, message, client_state, steps):\n"
        "        client_state['seen'] += 1\n"
        "        return super().client_update(ctx, message, client_state, steps)\n",
        {"file": "mine.py:19", "key": "client_update", "names": "client_state[seen]"},
    ),
    "itself": (
        "def server_update(self, ctx, server, updates, weights):\n"
        "        object.__setattr__(self, 'before', updates)\n"
        "        return super().server_update(ctx, server, updates, weights)\n",
        {"file": "mine.py:16", "key": "server_update", "names": "self.before"},
    ),
    "its class": (
        "seen: ClassVar[list[int]] = []\n\n"
        "    def broadcast(self, ctx, server):\n"
        "        self.seen.append(ctx.round)\n"
        "        return super().broadcast(ctx, server)\n",
        {"file": "mine.py:18", "key": "broadcast", "names": "Mine.seen"},
    ),
    "torch's global randomness": (
        "def client_update(self, ctx, message, client_state, steps):\n"
        "        update, client_state = super().client_update(ctx, message, client_state, steps)\n"
        "        moved = tree.apply(lambda leaf: leaf + torch.randn(leaf.shape), update)\n"
        "        return moved, client_state\n",
        {"file": "mine.py:16", "key": "client_update", "names": "generator of torch"},
    ),
    "numpy's global randomness": (
        "def aggregation_weights(self, ctx, server, updates):\n"
        "        weights = torch.from_numpy(np.random.rand(len(ctx.cohort))).float()\n"
        "        return weights, server\n",
        {"file": "mine.py:16", "key": "aggregation_weights", "names": "numpy"},
    ),
    "Python's global randomness": (
        "def sample_steps(self, ctx, rng, steps):\n"
        "        return {'coin': torch.tensor([random.random() for _ in range(steps)])}\n",
        {"file": "mine.py:16", "key": "sample_steps", "names": "Python's random"},
    ),
    "torch's default dtype": (
        "def broadcast(self, ctx, server):\n"
        "        torch.set_default_dtype(torch.float64)\n"
        "        return super().broadcast(ctx, server)\n",
        {"file": "mine.py:16", "key": "broadcast", "names": "default dtype"},
    ),
    "torch's default dtype, when it is imported": (
        "mu: float = 0.1\n\n\ntorch.set_default_dtype(torch.float64)\n",
        {"file": "mine.py", "key": "torch.set_default_dtype", "names": "torch.float64"},
    ),
    "lost state": (
        "def server_update(self, ctx, server, updates, weights):\n"
        "        moved = super().server_update(ctx, server, updates, weights)\n"
        "        return {'params': moved['params'], 'extra': torch.zeros(2)}\n\n"
        "    def init_server(self, ctx, params):\n"
        "        return {**super().init_server(ctx, params), 'c': torch.zeros(2)}\n",
        {"file": "mine.py:16", "key": "server_update", "names": "lacks c"},
    ),
    "growing state": (
        "def init_server(self, ctx, params):\n"
        "        return {**super().init_server(ctx, params), 'losses': torch.zeros(1)}\n\n"
        "    def server_update(self, ctx, server, updates, weights):\n"
        "        moved = super().server_update(ctx, server, updates, weights)\n"
        "        return {**moved, 'losses': torch.cat([server['losses'], torch.zeros(1)])}\n",
        {"file": "mine.py:19", "key": "server_update", "names": ("losses", "[2]")},
    ),
    "growing dict": (
        "def aggregation_weights(self, ctx, server, updates):\n"
        "        weights, server = super().aggregation_weights(ctx, server, updates)\n"
        "        return weights, {**server, f'round{ctx.round}': weights}\n",
        {"file": "mine.py:16", "key": "aggregation_weights", "names": "round0"},
    ),
    "a state without a beginning": (
        "def client_update(self, ctx, message, client_state, steps):\n"
        "        update, client_state = super().client_update(ctx, message, client_state, steps)\n"
        "        return update, {'delta': update['delta']['head.bias']}\n",
        {"file": "mine.py:16", "key": "client_update", "names": ("client's state", "delta")},
    ),
    "weigh of one value": (
        "def aggregation_weights(self, ctx, server, updates):\n"
        "        return ctx.sizes / ctx.sizes.sum()\n",
        {"file": "mine.py:16", "key": "aggregation_weights", "names": "[3]"},
    ),
    "weights of another length": (
        "def aggregation_weights(self, ctx, server, updates):\n"
        "        return torch.ones(ctx.clients) / ctx.clients, server\n",
        {"file": "mine.py:16", "key": "aggregation_weights", "names": "aggregation weights"},
    ),
    "weights that are not finite": (
        "def aggregation_weights(self, ctx, server, updates):\n"
        "        return ctx.sizes / 0, server\n",
        {"file": "mine.py:16", "key": "aggregation_weights", "names": "finite"},
    ),
    "missing delta": (
        "def client_update(self, ctx, message, client_state, steps):\n"
        "        update, client_state = super().client_update(ctx, message, client_state, steps)\n"
        "        return {'model': update['delta']}, client_state\n",
        {"file": "mine.py:16", "key": "client_update", "names": ("`delta`", "model")},
    ),
    "a delta of another shape": (
        "def client_update(self, ctx, message, client_state, steps):\n"
        "        update, client_state = super().client_update(ctx, message, client_state, steps)\n"
        "        return tree.apply(torch.Tensor.flatten, update), client_state\n",
        {"file": "mine.py:16", "key": "client_update", "names": ("head.weight", "[12]")},
    ),
    "an update that is no tree": (
        "def client_update(self, ctx, message, client_state, steps):\n"
        "        update, client_state = super().client_update(ctx, message, client_state, steps)\n"
        "        return {**update, 'count': len(steps)}, client_state\n",
        {"file": "mine.py:16", "key": "client_update", "names": "count"},
    ),
    "one thing returned by local": (
        "def client_update(self, ctx, message, client_state, steps):\n"
        "        return super().client_update(ctx, message, client_state, steps)[0]\n",
        {"file": "mine.py:16", "key": "client_update", "names": "two trees"},
    ),
    "clients whose updates differ": (
        "def client_update(self, ctx, message, client_state, steps):\n"
        "        update, client_state = super().client_update(ctx, message, client_state, steps)\n"
        "        name = f'from{int(steps.orders[0][0]) % 6}'\n"
        "        return {**update, name: torch.zeros(1)}, client_state\n",
        {"file": "mine.py:16", "key": "client_update", "names": "lacks"},
    ),
    "a loss for each sample": (
        "def loss(self, ctx, message, client_state, params, batch):\n"
        "        return ctx.task.losses(ctx.net(params, batch['x']), batch['y'], 'none')\n",
        {"file": "mine.py:16", "key": "loss", "names": "[8]"},
    ),
    "draws of another length": (
        "def sample_steps(self, ctx, rng, steps):\n"
        "        return {'coin': torch.rand(1, generator=rng)}\n",
        {"file": "mine.py:16", "key": "sample_steps", "names": ("coin", "[1]")},
    ),
    "an error of its own": (
        "def client_update(self, ctx, message, client_state, steps):\n"
        "        return message['parameters']\n",
        {"file": "mine.py:17", "key": "client_update", "names": "KeyError"},
    ),
    "wrong shapes": (
        "def server_update(self, ctx, server, updates, weights):\n"
        "        bias = updates['delta']['head.bias'] * ctx.sizes[:2]\n"
        "        return server\n",
        {"file": "mine.py:17", "key": "server_update", "names": "RuntimeError"},
    ),
    "a module's list": (
        "def client_update(self, ctx, message, client_state, steps):\n"
        "        SEEN.append(ctx.round)\n"
        "        return super().client_update(ctx, message, client_state, steps)\n\n\n"
        "SEEN = []\n",
        {"file": "mine.py:16", "key": "client_update", "names": "SEEN"},
    ),
    "a module's counter": (
        "def broadcast(self, ctx, server):\n"
        "        next(ROUNDS)\n"
        "        return super().broadcast(ctx, server)\n\n\n"
        "ROUNDS = itertools.count()\n",
        {"file": "mine.py:16", "key": "broadcast", "names": "ROUNDS"},
    ),
}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("FEDREPRO_METHODS", str(tmp_path))

    def put(text: str, name: str = "mine.py") -> None:
        (tmp_path / name).write_text(HEAD + text, encoding="utf-8")

    return put


@pytest.mark.parametrize("case", LOADED)
def test_a_file_is_refused_when_it_is_loaded(case: str, write) -> None:  # type: ignore[no-untyped-def]
    text, fault = LOADED[case]
    write(text)
    with refused(**fault):
        registry.compose("mine")


def test_a_file_is_taken_whose_names_are_its_own(write) -> None:  # type: ignore[no-untyped-def]
    """Other names of parameters, defaults, helpers, and a hyperparameter that looks like a hook."""
    write(
        FROZEN + "broadcasts: float = 0.1\n    least: float = 0.2\n\n"
        "    def broadcast(self, context, state, scale=1.0):\n"
        "        return self.brodcast_of(state)\n\n"
        "    def brodcast_of(self, state):\n        return {'params': state['params']}\n\n"
        "    def _kept(self, ctx):\n        return ctx\n\n"
        "    @property\n    def twice(self):\n        return 2 * self.least\n"
    )
    method, _ = registry.compose("mine", {"mine": {"least": 0.5}}, folders_here())
    assert method.twice == 1.0  # type: ignore[attr-defined]


@pytest.mark.parametrize("case", PLAYED)
def test_a_hook_is_refused_in_the_first_round(case: str, write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    text, fault = PLAYED[case]
    write(FROZEN + text)
    with refused(**fault):
        tiny_run.carry_out(tmp_path / "run", tiny_run.run_spec("mine"))


@pytest.mark.parametrize("hook", ["loss", "gradient"])
@pytest.mark.parametrize("given", ["message, own, theta, batch", "*rest"])
def test_a_hook_s_arguments_may_have_other_names(
    hook: str, given: str, write, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    write(
        FROZEN + f"def {hook}(self, context, {given}):\n"
        f"        return super().{hook}(context, {given})\n"
    )
    tiny_run.carry_out(tmp_path / "run", tiny_run.run_spec("mine"))


@pytest.mark.parametrize(
    ("base", "sent"),
    [("fedavg.FedAvg", "delta"), ("scaffold.Scaffold", "change"), ("qfedavg.QFedAvg", "delta")],
)
def test_what_an_inherited_hook_reads_must_be_sent(
    base: str, sent: str, write, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    """Also where the hook is another method's of the package, whose updates have more."""
    module, name = base.split(".")
    write(
        f"from fedrepro.methods.{module} import {name} as Base\n\n\n"
        "@dataclass(frozen=True)\nclass Mine(Base):\n"
        "    def client_update(self, ctx, message, client_state, steps):\n"
        "        update, state = super().client_update(ctx, message, client_state, steps)\n"
        f"        return {{k: v for k, v in update.items() if k != {sent!r}}}, state\n"
    )
    with refused(key="client_update", names=f"no `{sent}`"):
        tiny_run.carry_out(tmp_path / "run", tiny_run.run_spec("mine"))


def test_a_hook_that_few_runs_call_is_checked_as_well(write) -> None:  # type: ignore[no-untyped-def]
    write(
        FROZEN + "def from_parent(self, ctx, server):\n"
        "        server['params']['head.bias'] += 1\n"
        "        return server\n"
    )
    method, _ = registry.compose("mine", folders=folders_here())
    world = watched(federation(method=method))
    with refused(file="mine.py:16", key="from_parent", names="server[params/head.bias]"):
        world.method.from_parent(world.context, begin(world))


def test_a_hook_within_a_wrapper_of_the_package_is_checked_as_well(write) -> None:  # type: ignore[no-untyped-def]
    write(FROZEN + "def init_server(self, ctx, params):\n        return {'params': 3}\n")
    method, _ = registry.compose("ima+mine", folders=folders_here())
    with refused(file="mine.py:16", key="init_server"):
        begin(watched(federation(method=method)))


@pytest.mark.parametrize("executor", ["sequential", "parallel"])
def test_to_be_watched_changes_no_bit(executor: str, write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """A file that is right, with a helper, gives what the package's own method gives."""
    write(
        "@dataclass(frozen=True)\nclass Mine(Method):\n    mu: float = 0.1\n\n"
        "    def loss(self, ctx, message, client_state, params, batch):\n"
        "        task = super().loss(ctx, message, client_state, params, batch)\n"
        "        return task + self.losses(params, message)\n\n"
        "    def losses(self, params, message):\n"
        "        away = tree.subtract(params, message['params'])\n"
        "        return self.mu / 2 * tree.square_norm(away)\n"
    )
    way = {"executor": executor, "threads": 2}
    values = {"fedprox": {"mu": 0.1}}
    tiny_run.carry_out(tmp_path / "mine", tiny_run.run_spec("mine", **way))
    tiny_run.carry_out(
        tmp_path / "fedprox", tiny_run.run_spec("fedprox", hyperparameters=values, **way)
    )
    for name in ("rounds.parquet", "clients.parquet"):
        one, other = (tmp_path / each / name for each in ("mine", "fedprox"))
        assert one.read_bytes() == other.read_bytes()


def test_what_a_process_of_its_own_raises_is_one_line(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write(
        FROZEN + "def client_update(self, ctx, message, client_state, steps):\n"
        "        return message['parameters']\n"
    )
    spec = tiny_run.run_spec("mine", executor="parallel", threads=2)
    with pytest.raises(UserError, match=r"mine.py:17: client_update: KeyError: 'parameters'$"):
        tiny_run.carry_out(tmp_path / "run", spec)


def test_the_command_says_what_holds(
    write,  # type: ignore[no-untyped-def]
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(
        FROZEN + "def aggregation_weights(self, ctx, server, updates):\n"
        "        return (ctx.cohort == int(ctx.cohort[0])).to(ctx.sizes), server\n"
    )
    assert main(["check", "mine"]) == 0
    assert "passed  a run resumed from disk gives the same bits" in capsys.readouterr().out
    write_again = FROZEN.replace("Mine", "Other") + (
        "def client_update(self, ctx, message, client_state, steps):\n"
        "        update, client_state = super().client_update(ctx, message, client_state, steps)\n"
        "        noise = np.random.default_rng().normal()\n"
        "        return tree.apply(lambda leaf: leaf + noise, update), client_state\n"
    )
    write(write_again, "other.py")
    assert main(["check", "other"]) == 1
    found = capsys.readouterr().out
    assert "FAILED  two processes give the same bits as one: in two processes: the" in found
    assert found.splitlines()[-1].startswith("other: ")


def test_what_a_worker_computes_otherwise_is_found_in_two_processes_alone(
    write,  # type: ignore[no-untyped-def]
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As what was read or counted in the first process, which no other check sees."""
    write(
        "import os, time\n"
        + FROZEN.replace("@dataclass", "HERE = os.getpid()\n\n\n@dataclass", 1).replace(
            "Mine", "Else"
        )
        + "def client_update(self, ctx, message, client_state, steps):\n"
        "        time.sleep(0.02)  # so that both processes get a client\n"
        "        update, client_state = super().client_update(ctx, message, client_state, steps)\n"
        "        away = float(os.getpid() != HERE)\n"
        "        return tree.apply(lambda leaf: leaf + away, update), client_state\n",
        "elsewhere.py",  # what the suite has played it remembers by name
    )
    assert main(["check", "elsewhere"]) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAILED")]
    assert "two processes give the same bits as one" in failed[0]
    assert all("in two processes: " in line for line in failed)


def test_the_command_names_the_usual_causes(
    write,  # type: ignore[no-untyped-def]
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(
        FROZEN.replace("Mine", "Near")
        + "def loss(self, ctx, message, client_state, params, batch):\n"
        "        task = super().loss(ctx, message, client_state, params, batch)\n"
        "        features = ctx.net.features(params, batch['x'])\n"
        "        with torch.no_grad():\n"
        "            past = ctx.net.features(message['params'], batch['x'])\n"
        "        return task + (features - past).square().mean()\n",
        "near.py",  # what the suite has played it remembers by name
    )
    assert main(["check", "near"]) == 1
    side, statistics, *_ = re.findall("^FAILED  (.*)", capsys.readouterr().out, re.MULTILINE)
    assert "batch['real']" in side
    assert "message[params/body.1.running_mean]" in statistics
    assert statistics.endswith("`with ctx.net.testing():`")


@pytest.mark.parametrize("channels", [":1", "-1:", ":"])
@pytest.mark.parametrize("way", ["+ 99", "- 99"])
@pytest.mark.parametrize("buffer", ["running_mean", "running_var"])
def test_no_channel_of_batch_norm_may_lie_outside_of_what_clients_have(
    write,  # type: ignore[no-untyped-def]
    buffer: str,
    way: str,
    channels: str,
) -> None:
    write(
        FROZEN.replace("Mine", "Outside")
        + "def server_update(self, ctx, server, updates, weights):\n"
        "        server = super().server_update(ctx, server, updates, weights)\n"
        f"        path = 'body.1.{buffer}'\n"
        "        if path not in server['params']:\n"
        "            return server\n"
        "        moved = server['params'][path].clone()\n"
        f"        moved[{channels}] = moved[{channels}] {way}\n"
        "        return {**server, 'params': {**server['params'], path: moved}}\n",
        "outside.py",
    )
    with pytest.raises(suite.Failed, match=f"{buffer} of BatchNorm lies outside"):
        suite.running_statistics_stay_among_those_of_the_clients(
            trial_of("outside", folders_here())
        )


def test_a_traceback_is_for_the_log(
    write,  # type: ignore[no-untyped-def]
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(FROZEN + "def __post_init__(self):\n        self.mu\n")
    log = tmp_path / "log"
    assert main(["--log", str(log), "check", "mine"]) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(r"fedrepro: .*mine.py:17: __post_init__: AttributeError: .*'mu'\n", said)
    assert "Traceback" in log.read_text(encoding="utf-8")
