"""Templates, and what pages may advise."""

import os
from pathlib import Path

import pytest

from fedrepro.report.pages.templates import TEMPLATES, Renderer
from support.places import ROOT


@pytest.mark.parametrize(("linked", "said"), [(True, "clone"), (False, "workbench")])
def test_committed_results_are_a_clones_in_whatever_folder_they_are_rendered(
    tmp_path: Path, linked: bool, said: str
) -> None:
    if linked:
        (tmp_path / "config").symlink_to(ROOT / "config")
    (tmp_path / TEMPLATES).mkdir(parents=True)
    (tmp_path / TEMPLATES / "page.html.j2").write_text(
        "{{ 'clone' if is_clone else 'workbench' }}", encoding="utf-8"
    )
    page = Renderer(tmp_path).write(Path("page.html"), "page.html.j2", {})
    assert (tmp_path / page).read_text(encoding="utf-8").strip() == said


def test_a_name_that_is_no_utf8_is_shown(tmp_path: Path) -> None:
    (tmp_path / TEMPLATES).mkdir(parents=True)
    (tmp_path / TEMPLATES / "page.html.j2").write_text("{{ client }}", encoding="utf-8")
    name = os.fsdecode(b"caf\xe9")
    page = Renderer(tmp_path).write(Path("page.html"), "page.html.j2", {"client": name})
    assert (tmp_path / page).read_text(encoding="utf-8") == "caf\\udce9\n"
