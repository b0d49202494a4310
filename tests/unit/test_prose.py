"""Tests look at fields, data and exit statuses: few hold the wording of a line or a page."""

import ast
from pathlib import Path

import pytest

from support.prose import Module, prose_of_tests

MOST = 0.05  # of all test functions


def test_few_tests_compare_prose() -> None:
    tests = prose_of_tests()
    prose = [name for name, texts in tests.items() if texts]
    many = f"{len(prose)}: look at fields instead (tests/support/refusals.py)"
    assert len(prose) <= MOST * len(tests), (many, prose)


COMPARING = (
    'def test_a(out): assert "it is not here" in out',
    'def test_a(out): assert "it is" in out and "not here" in out',
    'def test_a(out): assert "it is " + "not here" in out',
    'def test_a(out): assert f"{out}: it is not here" == out',
    'def test_a(out): assert all(words in out for words in ("it is not here", "x"))',
    'def test_a(out): assert out.startswith("it is not here")',
    'def test_a():\n    with pytest.raises(ValueError, match=r"it is.*not here$"): f()',
    'WORDS = "it is not here"\ndef test_a(out): assert WORDS in out',
    '@pytest.mark.parametrize("line", ["it is not here"])\ndef test_a(line): assert line in f()',
    '@pytest.mark.parametrize(("x", "y"), [(1, "it is not here")])\ndef test_a(x, y): x == y',
    'def has(text, words): assert words in text\ndef test_a(out): has(out, "it is not here")',
)
OTHERS = (
    'def test_a(out): assert "settings.own.lr" in out and "0.5 and 3" in out',
    'def test_a(out): assert out["it is not here"] == 3',
    'def test_a(out): assert f("it is not here") == 3',
    'def test_a(out): assert "run `fedrepro table ima/table_2`" in out',
    'def test_a(path): path.write_text("it is not here"); assert "not here" in path.read_text()',
    'def test_a(out):\n    """It is not here."""\n    assert out == 3, "it is not here"',
)


@pytest.mark.parametrize("source", COMPARING)
def test_a_sentence_is_found_wherever_it_stands(source: str) -> None:
    assert Module(ast.parse(source), {}).prose()["test_a"]


@pytest.mark.parametrize("source", OTHERS)
def test_what_a_test_gives_and_names_is_no_prose(source: str) -> None:
    assert not Module(ast.parse(source), {}).prose()["test_a"]


def test_a_helper_counts_where_it_is_imported(tmp_path: Path) -> None:
    """A function of a test's own may have the name of a helper that compares."""
    (tmp_path / "support").mkdir()
    (tmp_path / "support/reads.py").write_text("def has(text, words): assert words in text\n")
    call = 'def test_a(out): has(out, "it is not here")\n'
    (tmp_path / "test_by_name.py").write_text(f"from support.reads import has\n{call}")
    (tmp_path / "test_renamed.py").write_text(
        f"from support.reads import has as shows\n{call.replace('has(', 'shows(')}"
    )
    (tmp_path / "test_by_module.py").write_text(
        f"from support import reads\n{call.replace('has(', 'reads.has(')}"
    )
    (tmp_path / "test_own.py").write_text(f"def has(file, text): file.write_text(text)\n{call}")
    prose = {name for name, texts in prose_of_tests(tmp_path).items() if texts}
    assert prose == {f"test_{how}.py::test_a" for how in ("by_name", "renamed", "by_module")}
