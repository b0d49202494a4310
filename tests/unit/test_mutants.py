"""The script that seeds bugs: what it changes and draws, and that its lists name what is there."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from support.places import ROOT
from support.scripts import script


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    return script("mutants")


def seeded(mutants: ModuleType, text: str) -> set[tuple[str, str, str]]:
    """Kind, old and new text of every change of a file."""
    source = mutants.Source(text)
    return {
        (kind, " ".join(text[slice(*place)].split()), now.strip())
        for kind, (place, now) in mutants.changes(source)
    }


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("if a < b: c()", {
            ("other_comparison", "<", "<="), ("other_comparison", "<", ">"),
            ("dropped_call", "c()", "pass"),
        }),
        ("x: int = 3", {("other_constant", "3", "4")}),
        ("x = a + b", {
            ("other_arithmetic", "+", "-"), ("dropped_operand", "a + b", "(a)"),
        }),
        ("x = a * weight", {
            ("other_arithmetic", "*", "/"), ("dropped_operand", "a * weight", "(a)"),
            ("dropped_operand", "a * weight", "(weight)"),
        }),
        ("x = a and b", {
            ("other_connective", "and", "or"), ("dropped_condition", "a and", ""),
            ("dropped_condition", "and b", ""),
        }),
        ("f(a, b, key=c)", {
            ("swapped_arguments", "a, b", "b, a"), ("dropped_call", "f(a, b, key=c)", "pass"),
            ("dropped_keyword", ", key=c", ""),
        }),
        ("y = f(low=a, high=b)", {
            ("swapped_arguments", "a, high=b", "b, high=a"),
            ("dropped_keyword", "low=a,", ""), ("dropped_keyword", ", high=b", ""),
        }),
        ('y = stream(seed, "own", client)', {
            ("wrong_stream", '"own"', '"shuffle"'), ("wrong_stream", ", client", ""),
        }),
        ("y = old.clone()", {("other_state", "old.clone()", "old")}),
        ("y = replace(old, x=new)", {
            ("other_state", "replace(old, x=new)", "old"), ("dropped_keyword", ", x=new", ""),
        }),
        ("y = kept.get(key, new)", {
            ("other_state", "kept.get(key, new)", "new"),
            ("swapped_arguments", "key, new", "new, key"),
        }),
        ("y = a if c else b", {
            ("negated_condition", "c", "not (c)"), ("one_branch", "a if c else b", "(a)"),
            ("one_branch", "a if c else b", "(b)"),
        }),
        ("y = x.mean(dim=1)", {
            ("other_axis", "mean", "sum"), ("other_axis", "1", "0"),
            ("other_constant", "1", "2"), ("dropped_keyword", "dim=1", ""),
        }),
        ("y = f(round)", {("off_by_one", "round", "(round + 1)")}),
        ("y = x[n:]", {("off_by_one", "n", "(n) + 1")}),
        ("y = [*a, 'b']", {("dropped_element", "*a,", ""), ("dropped_element", ", 'b'", "")}),
        ("y = {'a': b, 'c': d}", {
            ("dropped_element", "'a': b,", ""), ("dropped_element", ", 'c': d", ""),
        }),
        ("if not a:\n    raise ValueError(1)", {
            ("negated_condition", "not a", "not (not a)"), ("dropped_check", "not a", "False"),
            ("other_direction", "not a", "a"),
        }),
        ("y = it.higher_is_better", {
            ("other_direction", "it.higher_is_better", "(not it.higher_is_better)"),
        }),
        ("y = -x", {("other_direction", "-x", "x")}),
        ('def f(a: int) -> int:\n    """1 < 2."""\n    assert a < 3\n', set()),
        ("Kind = dict[a, b]", set()),
        ("y = x in (a, b)", {("other_comparison", "in", "not in")}),
        ("y = max(a, b)", {("other_axis", "max", "min")}),
    ],
)  # fmt: skip
def test_its_changes(mutants: ModuleType, text: str, made: set[tuple[str, str, str]]) -> None:
    assert seeded(mutants, text) == made


def test_rules_lose_an_input_or_a_parameter(mutants: ModuleType) -> None:
    text = "rule a:\n    input:\n        f,\n    output:\n        'b',\n    params:\n        c=g,\n"
    lost = {text[slice(*place)].strip() for place, _ in mutants.dropped_lines(text)}
    assert lost == {"f,", "c=g,"}


def test_a_seed_draws_the_same_sample_and_another_seed_another(mutants: ModuleType) -> None:
    drawn = [mutants.find(["measures"], seed)["measures"] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert set(drawn[0]) == set(drawn[2])
    first = drawn[0][:10]
    assert len({mutant.kind for mutant in first}) == len(first)  # kinds take turns


def test_each_mutant_that_is_tried_is_another_program(mutants: ModuleType) -> None:
    path = mutants.PACKAGE / "measures/clients.py"
    text = (ROOT / path).read_text(encoding="utf-8")
    for mutant in mutants.mutants_of(path):
        assert mutant.mutated(text) != text
        if mutant.is_valid:
            compile(mutant.mutated(text), "mutated", "exec")


def test_every_room_and_every_test_that_it_names_is_there(mutants: ModuleType) -> None:
    for room, tests in mutants.TESTS.items():
        assert (ROOT / mutants.PACKAGE / room).is_dir()
        for path in tests:
            assert (ROOT / path).exists(), path


def test_a_file_s_own_tests_come_first(mutants: ModuleType) -> None:
    def of(name: str) -> list[str]:
        return mutants.tests_of(mutants.PACKAGE / name)

    assert "tests/unit/report/test_downloads.py" in of("report/pages/downloads.py")[:2]
    assert "tests/property/test_fedevg.py" in of("methods/fedevg.py")[:3]
    assert "tests/property/test_distilling.py" in of("methods/distilling/losses.py")
    assert all((ROOT / each).is_file() for each in of("workflow/graph.py"))


def test_every_reason_is_of_a_mutant_that_there_is(mutants: ModuleType) -> None:
    reasons = yaml.safe_load(mutants.REASONS.read_text(encoding="utf-8")) or {}
    files = {mutants.PACKAGE / reason.partition(":")[0] for reason in reasons}
    there = {str(mutant) for file in files for mutant in mutants.mutants_of(Path(file))}
    assert set(reasons) <= there


# --- bugs drawn by hand ---------------------------------------------------------------------------
@pytest.fixture(scope="module")
def by_hand(mutants: ModuleType) -> ModuleType:
    return script("mutants_by_hand")


ENTRY = {
    "file": "src/fedrepro/methods/fedbn.py",
    "old": 'f"{path}." for path',
    "new": "path for path",
    "kind": "deep models",
    "why": "norm.1 takes norm.10 along",
}


def listed(folder: Path, *changes: dict[str, str | None]) -> Path:
    """A list with an entry for each change; None drops a key."""
    entries = [
        {key: value for key, value in {**ENTRY, **change}.items() if value is not None}
        for change in changes
    ]
    path = folder / "list.yaml"
    path.write_text(yaml.safe_dump(entries), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "name", sorted(path.name for path in (ROOT / "tests").glob("mutants_by_hand*.yaml"))
)
def test_the_lists_of_bugs_are_valid(by_hand: ModuleType, name: str) -> None:
    assert len(by_hand.read(ROOT / "tests" / name)) > 80


def test_a_bug_of_the_list_is_what_it_says(by_hand: ModuleType, tmp_path: Path) -> None:
    (entry,) = by_hand.read(listed(tmp_path, {}))
    text = (ROOT / ENTRY["file"]).read_text(encoding="utf-8")
    assert entry.mutant.mutated(text) == text.replace(ENTRY["old"], ENTRY["new"])
    assert entry.mutant.room == "methods" and "tests/property/test_deep_models.py" in (
        by_hand.tests_of(entry.mutant.path)
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"why": None}, "1: expected file, kind, new, old, why"),
        ({"more": "x"}, "1: expected file, kind, new, old, why"),
        ({"kind": "odd"}, "1: kind: odd: expected one of staleness, "),
        ({"file": "tests/conftest.py"}, "file: tests/conftest.py:"),
        ({"file": "src/fedrepro/nothing.py"}, "there is no such file"),
        ({"old": "import"}, "times: expected once"),
        ({"new": ENTRY["old"]}, "new: it is the same program"),
        ({"new": 'f"{path}." for in'}, "new: it is no Python"),
        (
            {"old": "from fedrepro.engine.initialise import BatchNorm", "new": ""},
            "new: it changes more than one expression, in a Module",
        ),
    ],
)
def test_a_mistake_in_the_list_is_a_line(
    by_hand: ModuleType, tmp_path: Path, change: dict[str, str | None], said: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        by_hand.read(listed(tmp_path, change))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_bug_that_is_there_twice_is_a_mistake(by_hand: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"1: it is there twice\nlist.yaml: 2: it"):
        by_hand.read(listed(tmp_path, {}, {"why": "another"}))


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        ("if a < b:\n    c(1)", "if a <= b:\n    c(1)", ""),
        ("if a < b:\n    c(1)", "if a < b:\n    c(2)", ""),
        ("def f(x=1): return x + 1", "def f(x=2): return x + 1", ""),
        ("y = f(a, b)", "y = f(b, a)", ""),
        ("y = f(a, key=b)", "y = f(a)", ""),
        ("if a < b:\n    c(1)", "if a <= b:\n    c(2)", "If"),
        ("def f(x=1): return x + 1", "def f(x=2): return x + 2", "FunctionDef"),
        ("a = 1\nb = 2", "a = 2\nb = 1", "Module"),
        ("with a:\n    b()\n    c()", "with a:\n    b()", "With"),
    ],
)
def test_one_expression_is_changed(
    by_hand: ModuleType, before: str, after: str, where: str
) -> None:
    found = by_hand.not_one_expression(before, after)
    assert found == (where and f"it changes more than one expression, in a {where}")


def test_a_list_is_gone_on_with(
    by_hand: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug is due without a result, or if nothing noticed it and tests have changed since."""
    monkeypatch.setattr(by_hand, "KEPT", tmp_path / "kept.jsonl")
    monkeypatch.setattr(by_hand, "tests_digest", lambda: "now")
    lasting = {"old": "return {name: leaf for name", "new": "return {name: 0 * leaf for name"}
    same = {"old": "isinstance(layer, BatchNorm)", "new": "not isinstance(layer, BatchNorm)"}
    entries = by_hand.read(listed(tmp_path, {}, lasting, {**same, "equivalent": "it is not"}))
    assert [each.number for each in by_hand.due(entries)] == [1, 2]

    def ended(entry: Any, end: str, tests: str) -> None:
        line = {
            "list": "x", "number": entry.number, "bug": entry.bug, "silent": [], "by": "t",
            "mutant": entry.mutant.identity, "end": end, "tests": tests,
        }  # fmt: skip
        with by_hand.KEPT.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    ended(entries[0], "survived", "before")
    ended(entries[1], "killed", "before")
    assert [each.number for each in by_hand.due(entries)] == [1]
    ended(entries[0], "survived", "now")
    assert by_hand.due(entries) == []
    told = by_hand.report(entries, "x" * 64)
    assert "2 bugs, 2 tried, 1 unnoticed when first tried, 1 now (50%)." in told
    assert "- 1. methods/fedbn.py: " in told and "- 3. methods/fedbn.py: " in told
    ended(entries[0], "killed", "later")
    assert "1 unnoticed when first tried, 0 now (0%)." in by_hand.report(entries, "x" * 64)


def test_every_package_has_tests_that_must_notice(mutants: ModuleType) -> None:
    for each in (ROOT / mutants.PACKAGE).glob("*/__init__.py"):
        assert mutants.tests_of(each.parent.relative_to(ROOT) / "any.py"), each
    assert {*mutants.tests_of(mutants.PACKAGE / "methods/fedbn.py")} < {*mutants.all_tests()}
    assert mutants.OWN not in {*mutants.tests_of(mutants.PACKAGE / "methods/fedbn.py")}
    assert mutants.OWN not in {*mutants.all_tests()} and (ROOT / mutants.OWN).is_file()
    assert not [each for each in mutants.all_tests() if "slurm/" in each or "benchmarks/" in each]
