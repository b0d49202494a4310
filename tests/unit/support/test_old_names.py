"""Files from before the names of today: old keys are read."""

from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.support.errors import UserError
from fedrepro.support.old_names import OLD_KEYS, _tell, with_new_keys
from support.project import ROOT


def test_old_keys_are_read_and_told_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    _tell.cache_clear()
    content = {"methods": {"a": {"trunk": "b", "mu": 1}}, "settings": [{"trunk": {"own": 1}}]}
    for _ in range(2):
        found = with_new_keys("experiment", content, "f.yaml")
    assert found == {**content, "methods": {"a": {"parent": "b", "mu": 1}}}
    line = "fedrepro: f.yaml: methods.a.trunk: is called 'parent' now; 'trunk' goes with the next"
    assert capsys.readouterr().err == f"{line} release\n"
    with pytest.raises(UserError, match=r"c\.yaml: own: is called 'plugins' now, which is there"):
        with_new_keys("config", {"own": {}, "plugins": {}}, "c.yaml")


def test_a_workbench_from_before_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _tell.cache_clear()
    for path in (ROOT / "config").rglob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        for names in OLD_KEYS.values():
            for where, new in names.items():
                text = text.replace(f" {new}: ", f" {where[-1]}: ")
        there = tmp_path / path.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text, encoding="utf-8")
    with (tmp_path / "config/config.yaml").open("a", encoding="utf-8") as file:
        file.write("\nown: { methods: mine }\n")
    (tmp_path / "mine").mkdir()
    old, new = load(tmp_path), load(ROOT)
    said = capsys.readouterr().err
    assert "config/config.yaml: own: is called 'plugins' now" in said
    assert "'parent' now" in said and "'surrogate_for' now" in said
    assert old.config.plugins.methods == Path("mine")
    for system, experiment in new.experiments.items():
        assert old.experiments[system].model_dump() == experiment.model_dump()
    assert old.datasets == new.datasets
