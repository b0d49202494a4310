"""Tests look at fields, data and exit statuses: few hold the wording of a line or a page."""

import ast

import pytest

from support.prose import Module, prose_of_tests

MOST = 0.056  # of all test functions


def test_few_tests_compare_prose() -> None:
    tests = prose_of_tests()
    prose = [name for name, texts in tests.items() if texts]
    assert len(prose) <= MOST * len(tests), prose


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
