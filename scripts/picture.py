"""Make docs/site.png, the README's picture: claims of a paper, as Chromium shows their page.

The page is rendered from committed files only. The picture stores a hash of the page's text
(`made_from`), by which a test sees whether the picture is up to date.
"""

import hashlib
import io
import re
import shutil
import tempfile
from pathlib import Path

from PIL import Image, PngImagePlugin
from whole_site import ROOT, with_committed_files

from fedrepro.config.loading import load
from fedrepro.report.cells import tables
from fedrepro.report.cells.cell import read_table
from fedrepro.report.cells.readings import Readings
from fedrepro.report.pages.claims import claims_page, views_of
from fedrepro.report.pages.templates import Renderer
from fedrepro.report.papers import published
from fedrepro.support.files import write_atomically

PICTURE = ROOT / "docs/site.png"
SYSTEM = "aaggff"
WIDTH, HEIGHT = 1280, 960
KEY = "made-from"


def write_page(folder: Path) -> Path:
    """Render the page in an empty folder, from landed compact runs of one paper."""
    workbench, papers = load(with_committed_files(folder)), published.load(folder)
    found = {}
    for item in workbench.experiments[SYSTEM].compact:
        target = workbench.table(SYSTEM, item, "compact")
        tables.write(workbench, target, papers)
        table = read_table(folder, target)
        assert table is not None
        found[SYSTEM, item] = table
    renderer = Renderer(folder)
    renderer.write_assets()
    content = claims_page(papers, views_of(Readings(workbench, papers, found)))
    return folder / renderer.write(Path("claims.html"), "claims.html.j2", content)


def made_from(page: Path) -> str:
    """A hash of the words of the paper's section, without style."""
    seen = page.read_text(encoding="utf-8").partition(f'<section id="{SYSTEM}"')[2]
    seen = seen.partition("</section>")[0]
    words = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", seen, flags=re.DOTALL)
    return hashlib.sha256(" ".join(words.split()).encode()).hexdigest()


def main() -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = write_page(Path(folder))
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        view = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        view.goto(page.as_uri())
        section = view.locator(f"#{SYSTEM}")
        for _ in range(2):  # what comes into sight the first time may take more room than before
            section.evaluate("section => section.scrollIntoView({behavior: 'instant'})")
            view.wait_for_timeout(200)
        shot = Image.open(io.BytesIO(view.screenshot()))
        browser.close()
        said = PngImagePlugin.PngInfo()
        said.add_text(KEY, made_from(page))
        with write_atomically(PICTURE) as temporary:
            shot.convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(
                temporary, format="PNG", optimize=True, pnginfo=said
            )
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
