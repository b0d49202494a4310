"""docs/hooks.md lists all hooks, as they are written and in the order in which they are called."""

import functools
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from fedrepro.engine.method import Method
from fedrepro.methods import registry
from fedrepro.run.store import load_tree
from support import tiny_run
from support.places import ROOT

PAGE = (ROOT / "docs/hooks.md").read_text(encoding="utf-8")
LISTED = re.findall(r"^\| `(\w+)\((.*?)\)` \|", PAGE, re.MULTILINE)
NAMES = [name for name, _ in LISTED]
HOOKS = {
    name: hook
    for name, hook in vars(Method).items()
    if inspect.isfunction(hook) and not name.startswith("_")
}


def test_every_hook_is_listed_once_with_its_parameters() -> None:
    assert sorted(NAMES) == sorted(HOOKS)
    for name, parameters in LISTED:
        assert ["self", *filter(None, parameters.split(", "))] == [
            *inspect.signature(HOOKS[name]).parameters
        ]


def test_they_are_listed_in_calling_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: dict[str, None] = {}

    def recorded(name: str, hook: Any) -> Any:
        @functools.wraps(hook)
        def record(*given: Any, **named: Any) -> Any:
            if name != "metrics" or "broadcast" in called:  # before that, for its names alone
                called.setdefault(name)
            return hook(*given, **named)

        return record

    for name, hook in HOOKS.items():
        monkeypatch.setattr(Method, name, recorded(name, hook))
    (tmp_path / "plain.py").write_text(
        "from dataclasses import dataclass\n\nfrom fedrepro.engine.method import Method\n\n\n"
        "@dataclass(frozen=True)\nclass Plain(Method):\n    pass\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("FEDREPRO_METHODS", str(tmp_path))
    tiny_run.carry_out(
        tmp_path / "run", tiny_run.run_spec("plain", save_models_at={"plain": [1]}, rounds=2)
    )
    assert len(called) > 15
    assert [name for name in NAMES if name in called] == [*called]


def test_its_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    monkeypatch.setenv("FEDREPRO_METHODS", str(tmp_path))
    models = []
    for example, method, kind in zip(
        examples, ("clipped", "clip+fedprox"), ("method", "wrapper"), strict=True
    ):
        name = method.partition("+")[0]
        (tmp_path / f"{name}.py").write_text(example, encoding="utf-8")
        assert registry.parts()[name].kind == kind
        spec = tiny_run.run_spec(method, hyperparameters={name: {"most": 0.0}}, rounds=2)
        assert tiny_run.carry_out(tmp_path / method, spec)["status"] == "finished"
        models.append(load_tree(tmp_path / method / "model.safetensors")[0])
    torch.testing.assert_close(*models, rtol=0, atol=0)  # of both, no parameter ever moves
