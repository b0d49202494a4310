"""The README's picture says what today's page says."""

from pathlib import Path

from PIL import Image

from support.places import ROOT
from support.scripts import script


def test_the_picture_in_the_readme_is_todays(tmp_path: Path) -> None:
    picture = script("picture")
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
