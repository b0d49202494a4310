"""What differs between two manifests and two records of rounds, in words."""

import math
from pathlib import Path
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.provenance import fingerprint
from fedrepro.run import run_comparison
from fedrepro.run.run_comparison import Side, of_manifests, of_rounds
from fedrepro.support import checkout
from support.git import commit_all
from support.numbers_in_text import numbers_in

MANIFEST: dict[str, Any] = {
    "run": {"rounds": 8, "optimizer": {"lr": 0.1}, "seed": 1},
    "executor": "sequential",
    "code": "a" * 64,
    "code_files": {"engine/round.py": "1", "engine/net.py": "2", "methods/fedavg.py": "3"},
    "packages": {"torch": "2.9.0"},
    "hardware": {"cores": 2},
    "data": {"clients": 10},
    "status": "finished",
}
ROUNDS = {"round": [1.0, 2.0, 3.0], "loss": [0.5, 0.4, math.nan], "accuracy": [0.1, 0.2, 0.3]}


def compared(changes: dict[str, Any], **sides: Any) -> dict[str, list[str]]:
    return of_manifests(Side("a", MANIFEST), Side("b", MANIFEST | changes, **sides))


def test_equal_manifests_differ_in_nothing() -> None:
    assert compared({}) == {}


@pytest.mark.parametrize(
    ("changes", "title", "lines"),
    [
        (
            {"run": {"rounds": 9, "optimizer": {"lr": 0.1, "name": "adam"}, "seed": 1}},
            "configuration",
            ["rounds: 8 -> 9", "optimizer.name: absent -> adam"],
        ),
        ({"executor": "vectorised"}, "execution", ["executor: sequential -> vectorised"]),
        ({"packages": {"torch": "2.10.0"}}, "packages", ["torch: 2.9.0 -> 2.10.0"]),
        ({"hardware": {}}, "hardware", ["cores: 2 -> absent"]),
        ({"data": {"clients": None}}, "data", ["clients: 10 -> null"]),
        ({"numerics": {"fedavg": "n2"}}, "numerics", None),
        (
            {"code": "b" * 64, "code_files": {"engine/round.py": "9", "methods/ima.py": "4"}},
            "code",
            [
                "removed: engine/net.py",
                "removed: methods/fedavg.py",
                "added: methods/ima.py",
                "changed: engine/round.py",
            ],
        ),
        ({"code": "b" * 64}, "code", None),
        ({"code": "b" * 64, "code_files": None}, "code", None),
        # What a damaged file may hold.
        (
            {"packages": "torch"},
            "packages",
            ["torch: 2.9.0 -> absent", "packages: absent -> torch"],
        ),
        ({"run": {"rounds": "\x1b[2J"}}, "configuration", None),
    ],
)
def test_a_difference_is_a_line_under_its_title(
    changes: dict[str, Any], title: str, lines: list[str] | None
) -> None:
    found = compared(changes)
    assert [*found] == [title]
    assert lines is None or found[title] == lines
    assert all(line.isprintable() for line in found[title])


def test_commits_are_told_with_changed_code_if_both_are_known() -> None:
    git = [{"git": {"fedrepro": {"commit": commit, "dirty": False}}} for commit in "xy"]
    code = {"code": "b" * 64, "code_files": MANIFEST["code_files"] | {"methods/ima.py": "4"}}

    def lines(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[str]]:
        return of_manifests(Side("a", MANIFEST | before), Side("b", MANIFEST | after))

    assert lines(git[0], git[1]) == {}  # the same code in another commit
    assert lines(git[0], git[1] | code)["code"] == [
        "fedrepro.commit: x -> y",
        "added: methods/ima.py",
    ]
    for one, other in ((git[0], code), ({}, git[1] | code)):
        assert lines(one, other)["code"] == ["added: methods/ima.py"]
    older = {"code_files": None}
    assert lines(older | git[0], older | git[1]) == {}


def test_numerics_are_compared_where_both_have_them() -> None:
    one, other = ({"numerics": {"fedavg": name, "ima": "n1"}} for name in ("n1", "n2"))
    assert of_manifests(Side("a", one), Side("b", other)) == {"numerics": ["fedavg: n1 -> n2"]}


def test_what_is_not_recorded_is_told_with_whose_it_is() -> None:
    (unrecorded,) = compared({"numerics": {"fedavg": "n2"}})["numerics"]
    assert unrecorded.endswith(" a")
    (elsewhere,) = compared({"code": "b" * 64})["code"]
    assert "models/registry.py" in elsewhere
    (fingerprints,) = compared({"code": "b" * 64, "code_files": None})["code"]
    assert f"{'a' * 12}… -> {'b' * 12}…" in fingerprints and fingerprints.endswith(" b")


def test_the_first_round_that_differs_is_named_with_its_column() -> None:
    changed = ROUNDS | {"loss": [0.5, 0.25, 0.2], "accuracy": [0.1, 0.25, 0.3]}
    (line,) = of_rounds(Side("a", {}, ROUNDS), Side("b", {}, changed))
    assert ": loss: 0.4 -> 0.25, " in line and numbers_in(line) == [2, 0.4, 0.25, 1]
    (same,) = of_rounds(Side("a", {}, ROUNDS), Side("b", {}, dict(ROUNDS)))
    assert numbers_in(same) == [3] and "->" not in same


def test_rounds_and_columns_that_one_alone_has() -> None:
    short = {name: values[:2] for name, values in ROUNDS.items()} | {"gain": [1.0, 1.0]}
    column, rounds = of_rounds(Side("a", {}, ROUNDS), Side("b", {}, short))
    assert column.split()[1] == "b" and column.endswith(" gain")
    assert numbers_in(rounds) == [3] and " a " in rounds and " b " not in rounds
    nothing, whole = Side("a", {}), Side("b", {}, ROUNDS)
    for sides in ((nothing, whole), (whole, nothing)):
        (line,) = of_rounds(*sides)
        assert line.endswith(" a")


def test_a_changed_file_is_shown_as_git_does_where_the_commits_are_known(
    workbench: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = load(workbench).plugins
    name, file = "plugins/methods/my_prox.py", workbench / "methods/my_prox.py"

    def side(digest: str, commit: str, **more: Any) -> Side:
        git = {"plugins/methods": {"commit": commit, "dirty": False}}
        return Side(digest, {"code_files": {name: digest}, "git": git}, folders=folders, **more)

    first = commit_all(workbench)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("self.mu / 2", "self.mu / 3"), encoding="utf-8")
    second = commit_all(workbench)
    file.write_text(text.replace("self.mu / 2", "self.mu / 4"), encoding="utf-8")
    lines = of_manifests(side("1", first), side("2", second))["code"]
    assert f"changed: {name}" in lines
    assert any(line.startswith("  +") and "self.mu / 3" in line for line in lines)
    lines = of_manifests(side("1", first), side("3", second, today=True))["code"]
    assert any(line.startswith("  +") and "self.mu / 4" in line for line in lines)
    lines = of_manifests(side("1", second), side("2", second))["code"]
    assert lines[-2] == f"changed: {name}" and "commit" in lines[-1]
    unknown = of_manifests(side("1", "0" * 40), side("2", second))["code"]
    assert unknown[-1] == f"changed: {name}"
    unknown = of_manifests(side("1", first), side("2", "0" * 40))["code"]
    assert unknown[-1] == f"changed: {name}"
    today = of_manifests(side("1", first), side("3", "0" * 40, today=True))["code"]
    assert any(line.startswith("  +") and "self.mu / 4" in line for line in today)
    whole = of_manifests(side("1", first), side("2", second))["code"]
    monkeypatch.setattr(run_comparison, "PATCH", 3)
    lines = of_manifests(side("1", first), side("2", second))["code"]
    assert len(lines) == 6 and f"git diff {first} {second} -- my_prox.py" in lines[-1]
    assert f" {len(whole) - 5} more " in lines[-1]


def test_files_of_the_package_are_sought_in_its_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(checkout, "is_commit", lambda folder, name: name is not None)
    monkeypatch.setattr(checkout, "difference", lambda *where: asked.append(where) or ["+x"])
    sides = [
        Side(name, {"code_files": {"engine/net.py": name}, "git": {"fedrepro": {"commit": name}}})
        for name in "ab"
    ]
    assert of_manifests(*sides)["code"][-1] == "  +x"
    assert asked == [(fingerprint.PACKAGE, "a", "b", "engine/net.py")]
