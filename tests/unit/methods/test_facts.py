"""What methods' classes say is written down once, and read by who has not imported them."""

import json
import os
import shutil
from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.methods import facts, registry
from fedrepro.methods.facts import UNKNOWN, defaults_of, facts_of, late_wrapper_of
from fedrepro.support import plugins
from support import forks
from support.places import ROOT

# A wrapper by another name, from another method; and a default that no YAML can say.
LATE = """
from dataclasses import dataclass, field
from fedrepro.methods.ima import IMA as Base
LATER = 0.25

@dataclass(frozen=True)
class Late(Base):
    share: float = LATER
    odd: tuple[int, ...] = (1, 2)
"""
# Run apart: what is said of `late`, and whether PyTorch was imported for it.
SAID = """
import json, sys
from fedrepro.config.loading import load
from fedrepro.methods import facts
bench = load()
defaults = facts.defaults_of("late", bench.plugins)
print(json.dumps({
    "inner": facts.facts_of("late", bench.plugins).shares_prefix_with_inner,
    "fields": list(defaults),
    "share": defaults["share"],
    "odd": defaults["odd"] is facts.UNKNOWN,
    "needs": facts.facts_of("fedgo", bench.plugins).requires,
    "imported": "torch" in sys.modules,
}))
"""


@pytest.fixture
def workbench(tmp_path: Path) -> Path:
    root = tmp_path / "workbench"
    shutil.copytree(ROOT / "workflow/skeleton", root, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "config/datasets.yaml", root / "config")
    (root / "methods/late.py").write_text(LATE)
    return root


def python(root: Path, module: str) -> str:
    """What a module prints; in a fork, to which PyTorch is new without taking seconds."""
    environment = {key: value for key, value in os.environ.items() if key != plugins.VARIABLE}
    environment.setdefault("PYTHONPATH", str(ROOT / "src"))
    output = root / "output.txt"
    status = forks.run(module, root, environment, output)
    printed = output.read_text(encoding="utf-8")
    assert not status, printed
    return printed


def said(root: Path) -> dict[str, object]:
    (root / "said.py").write_text(SAID)
    found: dict[str, object] = json.loads(python(root, "said"))
    return found


def test_what_classes_say() -> None:
    for name, part in registry.parts().items():
        deviations = registry.describe(part)["deviations"]
        released = {each["field"]: each["released"] for each in deviations}
        known = registry.hyperparameters_of(part.cls)
        assert defaults_of(name) == known  # all of them plain
        assert defaults_of(name, released=True) == known | released
        assert {*facts_of(name).departures} == {str(each["item"]) for each in deviations}
        assert facts_of(name).shares_prefix_with_inner == (name == "ima")


def test_it_is_written_by_the_one_process_that_imports_them(workbench: Path) -> None:
    asked = said(workbench)
    assert asked.pop("imported") is True and not (workbench / facts.WRITTEN).exists()
    python(workbench, "fedrepro.workflow.checks")
    read = said(workbench)
    assert read.pop("imported") is False
    assert read == asked
    assert read["inner"] is True and read["share"] == 0.25 and read["odd"] is True
    (workbench / "methods/late.py").write_text(LATE.replace("0.25", "0.5"))
    assert not facts.are_written(load(workbench).plugins)
    changed = said(workbench)
    assert changed["share"] == 0.5 and changed["imported"] is True


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"of": 1, "facts": {"late": 3}}', "\x00"])
def test_what_is_damaged_is_as_if_it_were_not_there(workbench: Path, text: str) -> None:
    path = workbench / facts.WRITTEN
    path.parent.mkdir()
    path.write_text(text)
    assert not facts.are_written(load(workbench).plugins)


def test_a_wrapper_is_known_by_its_class(workbench: Path) -> None:
    bench = load(workbench)
    assert facts_of("late", bench.plugins).shares_prefix_with_inner
    assert defaults_of("late", bench.plugins)["odd"] is UNKNOWN


@pytest.mark.parametrize(
    ("composition", "kind"),
    [
        ("fedavg", "plain"),
        ("ima+aaggff_d+fedavg", "plain"),
        ("ima", "plain"),
        ("fedavg+fedadam", "plain"),
        ("fedprox", "own"),
        ("scaffold", "own"),
        ("fedper", "own"),
        ("ima+superfed_mm", "two models"),
        ("apfl", "two models"),
        ("central", "pooled"),
    ],
)
def test_what_steps_take_is_said_by_the_method_that_takes_them(composition: str, kind: str) -> None:
    assert facts_of(composition).steps == kind


def test_parts_of_a_composition_declare_together() -> None:
    found = facts_of("ima+fedgo+fedadam")
    assert found.requires == ("unlabelled", "discriminators") and not found.optional
    assert facts_of("ima+fedevg").optional == ("start",)
    values = {"window": 5, "weighting": "odds", "beta2": 0.99, "server_momentum": None}
    assert found.defaults.items() >= values.items() and {*found.fields} == {*found.defaults}
    assert facts_of("krum+multi_krum+fedavg").fields.count("share") == 1
    assert facts_of("ima+fedevg").released["schedule"] == "ddpm"
    assert found.released["before_server_optimizer"] and not found.released["remembers"]
    assert {"B4", "B2", "B3", "19"} == {*found.departures}
    assert facts_of("no_part+fedgo").requires == found.requires
    named = ("ima+fedavg", "norm_clip+ima+fedavg", "superfed_mm", "fedavg+fedadam")
    assert [late_wrapper_of(name) for name in named] == ["ima", "ima", "", ""]


def test_who_scores_a_client_by_a_model_of_its_own() -> None:
    """Also within a wrapper; not where there is no shared model to compare it with."""
    names = {name for name in registry.parts() if facts_of(name).own_models}
    assert names == {
        "apfl", "ditto", "fedbn", "fedper", "fedrep", "lg_fedavg", "per_fedavg", "pfedme",
        "superfed_lm", "superfed_mm",
    }  # fmt: skip
    assert facts_of("ima+ditto+fedadam").own_models and not facts_of("ima+fedavg").own_models
