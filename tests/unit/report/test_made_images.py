"""Figures of what methods have made: sheets, a strip that moves once, nearest training images."""

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.targets import FigureTarget, RunKey
from fedrepro.report.drawing import sheet
from fedrepro.report.pages.figures import sheets
from fedrepro.report.pages.figures.base import Drawn
from fedrepro.run.results import made_of, read_run
from fedrepro.run.store import load_tree, save_tree
from fedrepro.support import checksummed_json
from support.manifests import follow
from support.refusals import refused
from support.synthetic_world import FOLDER, RESULT


@pytest.fixture
def world(judged_copy: Path) -> Path:
    return judged_copy


def drawn(root: Path) -> Drawn:
    workbench = load(root)
    target = workbench.target("fedevg", "figure_4_1")
    assert isinstance(target, FigureTarget) and target.figure.kind == "sheets"
    assert list(target.analyses) == [RESULT]
    return sheets.draw(workbench, target, target.figure)


def pictures(html: str) -> list[Image.Image]:
    found = re.findall(r"data:image/png;base64,([^\"]+)", html)
    return [Image.open(io.BytesIO(base64.b64decode(each))) for each in found]


def test_a_strip_plays_once_and_is_its_last_frame_on_paper() -> None:
    random = np.random.default_rng(0)
    frames = [random.integers(0, 256, (3, 1, 4, 4), np.uint8) for _ in range(5)]
    html = sheet.animated(frames, 3, description='"Three" images')
    still, moving = pictures(html)
    assert '<source media="print, (prefers-reduced-motion: ' in html
    assert 'alt="&quot;Three&quot; images"' in html
    assert getattr(still, "n_frames", 1) == 1
    assert (moving.n_frames, moving.info["loop"]) == (5, 1)  # type: ignore[attr-defined]
    assert 5 * moving.info["duration"] == pytest.approx(1000 * sheet.SECONDS, abs=5)
    assert sheet.SECONDS <= 5
    moving.seek(4)
    assert moving.size == still.size
    assert (np.asarray(moving.convert("RGBA")) == np.asarray(still.convert("RGBA"))).all()


def test_a_figure_has_sheets_a_strip_and_pairs_of_each_run_once(world: Path) -> None:
    found = drawn(world)
    titles = [panel.title for panel in found.panels]
    assert all(title.startswith("Painter, ") for title in titles)
    rounds = [re.findall(r"\d+", title) for title in titles]
    assert rounds == [["1"], ["2"], [], ["1", "2"], []]
    sizes = [pictures(panel.svg)[0].size for panel in found.panels]
    assert sizes == [(5 * 30 - 2, 10 * 30 - 2)] * 3 + [(10 * 30 - 2, 28), (10 * 30 - 2, 58)]
    numbers = json.loads((world / RESULT).read_text())["numbers"]
    (row,) = found.rows
    assert row[:3] == ("Digits", "Painter", f"{100 * numbers['test_accuracy']:.1f} %")
    assert row[3] == f"{numbers['stand_in']:.2f}"
    assert main(["page", "fedevg", "figure_4_1"]) == 0
    page = (world / "reports/site/fedevg/figure_4_1.html").read_text(encoding="utf-8")
    assert page.count('<img class="sheet"') == 5 and "<picture>" in page


def test_what_is_missing_is_not_drawn(world: Path) -> None:
    pairs = world / RESULT.with_suffix(".pairs.safetensors")
    pairs.unlink()
    assert len(drawn(world).panels) == 4
    (world / RESULT).unlink()
    found = drawn(world)
    assert not found.panels and not found.rows


def judge_again(world: Path) -> None:
    """Let the quality be that of the run as it is now."""
    run = RunKey("fedevg/digits", "painter", 1)
    of = made_of([read_run(world, run)])
    checksummed_json.write(
        world / RESULT,
        {**checksummed_json.parsed(world / RESULT), "of": of},
        checksummed_json.of_results(RESULT),
    )


def test_damaged_images_are_told(world: Path) -> None:
    pairs = world / RESULT.with_suffix(".pairs.safetensors")
    save_tree(pairs, {"made": load_tree(pairs)[0]["made"]})
    with refused("damaged", file="seed1.pairs.safetensors", names=("damaged", "quality.json")):
        drawn(world)
    pairs.unlink()
    images = world / FOLDER / "round2-images.safetensors"
    content = images.read_bytes()
    images.write_bytes(content[:-1])
    with refused("damaged", file="round2-images.safetensors"):
        drawn(world)
    save_tree(
        images, {"images": load_tree(world / FOLDER / "round1-images.safetensors")[0]["images"][:7]}
    )
    follow(world / FOLDER, images.name)
    judge_again(world)
    with refused("damaged", names=("7", "10", "classes")):
        drawn(world)
