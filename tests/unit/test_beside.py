"""scripts/beside: two commands at once, as `make check` runs lint and tests."""

import subprocess

import pytest

from support.places import ROOT


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [("true", "true", 0), ("exit 3", "true", 3), ("true", "exit 4", 4), ("exit 3", "exit 4", 3)],
)
def test_it_fails_if_either_does(first: str, second: str, status: int) -> None:
    command = [ROOT / "scripts/beside", f"echo one; {first}", f"echo two; {second}"]
    called = subprocess.run(command, capture_output=True, text=True)
    assert called.returncode == status
    assert {"one", "two"} < {*called.stdout.splitlines(), ""}
    assert ("failed: echo one" in called.stdout.splitlines()[-1]) == (first != "true")


def test_what_the_first_says_is_in_one_piece() -> None:
    first = "echo a; echo b >&2; sleep 0.2; echo c"
    called = subprocess.run(
        [ROOT / "scripts/beside", first, "echo 1; sleep 0.1; echo 2"],
        capture_output=True,
        text=True,
    )
    assert "a\nb\nc\n" in called.stdout and not called.stderr
