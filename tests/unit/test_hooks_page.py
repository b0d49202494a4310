"""docs/hooks.md lists all hooks, as they are written and in the order in which they are called."""

import functools
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from fedrepro.engine.method import Method
from fedrepro.methods import registry
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


def test_its_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "clipped.py").write_text(example, encoding="utf-8")
    monkeypatch.setenv("FEDREPRO_METHODS", str(tmp_path))
    assert registry.parts()["clipped"].kind == "method"
    spec = tiny_run.run_spec("clipped", hyperparameters={"clipped": {"most": 0.0}}, rounds=2)
    found = tiny_run.carry_out(tmp_path / "run", spec)
    assert found["status"] == "finished"
