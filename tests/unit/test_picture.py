"""The README's picture says what today's page says."""

import importlib
from pathlib import Path

import pytest
from PIL import Image

from support.places import ROOT


def test_the_picture_in_the_readme_is_todays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    picture = importlib.import_module("picture")
    assert "(docs/site.png)" in (ROOT / "README.md").read_text(encoding="utf-8")
    with Image.open(picture.PICTURE) as image:
        of = image.info[picture.KEY]
    page = picture.write_page(tmp_path)
    assert of == picture.made_from(page), "make picture"
    text = page.read_text(encoding="utf-8")
    styled = text.replace("<table", '<table style="color: red"').replace(
        "</head>", "<style/></head>"
    )
    page.write_text(styled, encoding="utf-8")
    assert styled != text and of == picture.made_from(page)
    page.write_text(text.replace("</caption>", " or not</caption>"), encoding="utf-8")
    assert of != picture.made_from(page)
