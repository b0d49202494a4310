"""The README's picture shows today's page."""

import importlib.util
from pathlib import Path

from PIL import Image

from support.places import ROOT


def test_the_picture_in_the_readme_is_todays(tmp_path: Path) -> None:
    found = importlib.util.spec_from_file_location("picture", ROOT / "scripts/picture.py")
    assert found is not None and found.loader is not None
    picture = importlib.util.module_from_spec(found)
    found.loader.exec_module(picture)
    assert "(docs/site.png)" in (ROOT / "README.md").read_text(encoding="utf-8")
    with Image.open(picture.PICTURE) as image:
        of = image.info[picture.KEY]
    assert of == picture.made_from(picture.write_page(tmp_path)), "make picture"
