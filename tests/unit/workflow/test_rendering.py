"""The code that renders, as a parameter of rules: in a clone today's, elsewhere as recorded."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedrepro.workflow import rendering

NOW, OUTPUTS, KNOWN = ("a", "b"), [Path("x.html")], ["known"]


@pytest.mark.parametrize("clone", [False, True])
@pytest.mark.parametrize(
    ("recorded", "said"), [(None, False), (["b", "a"], False), (["c", "d"], True)]
)
def test_an_installed_package_renders_nothing_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    clone: bool,
    recorded: list[str] | None,
    said: bool,
) -> None:
    """Of whatever version; one line says so, once."""
    root = tmp_path / "root"
    package = (root if clone else tmp_path) / "src"
    (root / "folder").mkdir(parents=True)
    monkeypatch.setattr(rendering.fingerprint, "PACKAGE", package)
    asked: list[object] = []

    def parameters(*about: object) -> Sequence[str] | None:
        asked.append(about)
        return recorded

    monkeypatch.setattr(rendering, "recorded_parameters", parameters)
    rendering._say_once.cache_clear()
    for _ in range(2):
        kept = rendering.as_rendered(root / "folder/..", OUTPUTS, KNOWN, NOW)
        assert kept == (NOW if clone or recorded is None else recorded)
    assert capsys.readouterr().err.count("\n") == (said and not clone)
    assert asked == [] if clone else asked[0] == (root / "folder/..", OUTPUTS, KNOWN, 2)


def test_what_the_same_version_rendered_follows_the_user_s_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A method that was removed or renamed makes no file newer."""
    for recorded in (["a", "then"], ["A then", "a"]):  # in any order
        monkeypatch.setattr(rendering, "recorded_parameters", lambda *given, r=recorded: r)
        assert rendering.as_rendered(tmp_path, OUTPUTS, KNOWN, NOW) == NOW
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("edited", [False, True])
def test_what_shows_a_file_of_one_s_own_is_rendered_again_when_that_is_newer(
    edited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, page = tmp_path / "methods/mine.py", tmp_path / OUTPUTS[0]
    for number, each in enumerate((page, file) if edited else (file, page)):
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_text("text\n")
        os.utime(each, ns=(number, number))
    recorded = ["then"] * len(NOW)
    monkeypatch.setattr(rendering, "recorded_parameters", lambda *given: recorded)
    made = rendering.as_rendered(tmp_path, OUTPUTS, KNOWN, NOW, [file])
    assert made == (NOW if edited else recorded)
