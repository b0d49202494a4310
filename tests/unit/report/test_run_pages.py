"""Pages of runs: sample images, further numbers by round, and what runs were given."""

import base64
import errno
import html
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from safetensors.numpy import save_file

from fedrepro.cli.site import described_methods
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report import site
from fedrepro.report.cells import tables
from fedrepro.report.pages.run import spread, with_inputs
from fedrepro.report.pages.run_files import OURS
from fedrepro.report.pages.templates import Renderer
from fedrepro.report.papers import published
from fedrepro.run.replayed import read_replays
from fedrepro.run.results import read_run
from support.manifests import follow
from support.refusals import refused
from support.report_world import make_system, write_run

GAN = RunKey("fedgo/digits-gan-demo", "wgan_gp", 1)
CRITICS = RunKey("fedgo/digits-critics-demo", "discriminators", 1)
FEDGO = RunKey("fedgo/digits-demo", "fedgo", 1)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return load(make_system(tmp_path, "fedgo"))


def write_images(folder: Path, number: int, images: np.ndarray[Any, Any]) -> None:
    save_file({"images": images}, folder / f"round{number}-images.safetensors")
    follow(folder, f"round{number}-images.safetensors")


def add_columns(folder: Path, **columns: list[float]) -> None:
    """Further columns of rounds.parquet, or others instead."""
    path = folder / "rounds.parquet"
    pd.read_parquet(path).assign(**columns).to_parquet(path)
    follow(folder, "rounds.parquet")


def write_gan(bench: Workbench, rounds: tuple[int, ...] = (1, 2)) -> Path:
    """A run without a classifier, whose images are the brighter the later."""
    folder = write_run(bench, GAN, [math.nan] * 2)
    nothing = [math.nan] * 2
    losses = {"critic_loss": [-1.25, -0.5], "generator_loss": [0.004, 0.0061]}
    add_columns(folder, test_loss=nothing, test_accuracy=nothing, **losses)
    for number in rounds:
        write_images(folder, number, np.full((20, 1, 4, 6), 17 * number, dtype=np.uint8))
    return folder


def page_of(bench: Workbench, run: RunKey) -> str:
    """A run's page, made with those of the table that needs it."""
    target = bench.target("fedgo", "table_14_accuracy", "demo")
    assert isinstance(target, TableTarget)
    papers = published.load(bench.root)
    tables.write(bench, target, papers)
    site.write_page(bench, target, papers)
    path = bench.root / "reports/site" / read_run(bench.root, run).page
    return path.read_text(encoding="utf-8")


def pictures(text: str) -> list[tuple[str, Image.Image]]:
    """Alternative text and picture of every one in a page."""
    found = re.findall(r'<img [^>]*alt="([^"]*)" src="data:image/png;base64,([^"]*)"', text)
    return [(alt, Image.open(io.BytesIO(base64.b64decode(data)))) for alt, data in found]


def write_all(bench: Workbench) -> None:
    write_gan(bench)
    write_run(bench, CRITICS, [math.nan] * 2)
    add_columns(write_run(bench, FEDGO, [0.5, 0.75]), distillation_loss=[0.0021, 0.0012])


def test_a_generators_page_shows_its_images_over_time(bench: Workbench) -> None:
    write_all(bench)
    text = page_of(bench, GAN)
    shown = pictures(text)
    numbers = [re.findall(r"\d+", alt) for alt, _ in shown]
    assert numbers == [["20", "4", "6", "2"], ["16", "1"], ["16", "2"]]
    levels = [picture.convert("L").getpixel((0, 0)) for _, picture in shown]
    assert levels == pytest.approx([34, 17, 34], abs=10) and levels[1] < levels[0]
    assert [picture.size for _, picture in shown] == [(62, 16), (30, 22), (30, 22)]
    assert "<h4>Round 1</h4>" in text and "4 x 6 pixels" in text


def test_its_losses_are_curves_with_words_and_it_has_no_accuracy(bench: Workbench) -> None:
    write_all(bench)
    text = html.unescape(page_of(bench, GAN))
    assert re.search(r"loss[^.]*fedgo/digits-gan-demo[^.]* -0\.5\.", text)
    assert " 0.0061." in text
    assert "<strong>Critic's loss</strong>: " in text
    assert not re.search("<dt>[^<]*accuracy", text) and "nan" not in text.lower()
    assert "Part of <a" in text and "FedGO, Table 3" in text  # whose runs are given it


def test_who_is_given_a_run_names_it(bench: Workbench) -> None:
    write_all(bench)
    text = page_of(bench, FEDGO)
    assert "Inputs: discriminators:" in text
    assert "../../../../runs/fedgo/digits-critics-demo/discriminators/seed1.html" in text
    assert re.search(r"Distillation loss[^.]* 0\.0012\.", text)
    assert "Kullback-Leibler" in text
    assert not pictures(text)


def test_given_runs_count_among_the_costs(bench: Workbench) -> None:
    assert with_inputs(bench, [FEDGO]) == [FEDGO, CRITICS, GAN]
    assert with_inputs(bench, [GAN]) == [GAN]
    write_all(bench)
    site.write_site(bench, published.load(bench.root), described_methods(bench.plugins), "demo")
    text = (bench.root / "reports/site/cost.html").read_text(encoding="utf-8")
    for run in (GAN, CRITICS, FEDGO):
        assert run.setting in text and run.method in text
        assert (bench.root / "reports/site" / read_run(bench.root, run).page).exists()


def test_a_column_that_nobody_has_words_for_is_drawn_with_its_name(bench: Workbench) -> None:
    write_all(bench)
    path = bench.root / FEDGO.folder
    add_columns(path, some_share=[0.25, 0.5])
    text = page_of(bench, FEDGO)
    assert re.search(r"Some share[^.]*fedgo/digits-demo[^.]* 0\.5\.", text)


def test_one_round_with_images_has_no_course(bench: Workbench) -> None:
    write_gan(bench, rounds=(2,))
    write_run(bench, CRITICS, [math.nan] * 2)
    write_run(bench, FEDGO, [0.5, 0.75])
    text = page_of(bench, GAN)
    assert len(pictures(text)) == 1 and "Over time" not in text


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.unlink(),
        lambda path: (path.write_bytes(b"no images"), follow(path.parent, path.name)),
        lambda path: write_images(path.parent, 1, np.zeros((3, 4), dtype=np.uint8)),
        lambda path: write_images(path.parent, 1, np.zeros((3, 1, 4, 4), dtype=np.float32)),
    ],
)
def test_damaged_images_are_told_in_one_line(bench: Workbench, damage: Any) -> None:
    folder = write_gan(bench)
    damage(folder / "round1-images.safetensors")
    record = read_run(bench.root, GAN)
    assert record.rounds_with_images == [1, 2]
    with refused("damaged", file="seed1/round1-images.safetensors"):
        record.images(1)


def test_what_cannot_be_read_for_a_moment_is_not_called_damaged(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, open_of = write_gan(bench), Path.open
    replays = folder / "replays.json"
    replays.write_text("{}")
    record = read_run(bench.root, GAN)
    gone = {replays.name, "round1-images.safetensors"}

    def opened(path: Path, *args: Any, **options: Any) -> Any:
        if path.name in gone:
            raise OSError(errno.EMFILE, "too many open files", str(path))
        return open_of(path, *args, **options)

    monkeypatch.setattr(Path, "open", opened)
    with refused("unreadable", file="round1-images.safetensors"):
        record.images(1)
    with refused("unreadable", file=replays.name):
        read_replays(replays)
    gone.clear()
    assert len(record.images(1)) and read_replays(replays) == {}


def test_few_rounds_stand_for_many() -> None:
    assert spread([1, 2], 6) == [1, 2]
    assert spread(list(range(100, 1300, 100)), 6) == [100, 300, 500, 800, 1000, 1200]


def test_two_pages_may_write_the_files_of_one_run_at_once(tmp_path: Path) -> None:
    """What another process is writing under a hidden name stays, and what someone put there."""
    renderer = Renderer(make_system(tmp_path, "ima"))
    folder = tmp_path / "reports/site/runs/x"
    folder.mkdir(parents=True)
    for name in (".log.txt.12.tmp", "decisions.parquet", "own.parquet", "log.txt", "notes.txt"):
        (folder / name).touch()
    renderer.remove_others(Path("runs/x"), {"log.txt"}, OURS)
    left = {".log.txt.12.tmp", "log.txt", "notes.txt", "own.parquet"}
    assert {file.name for file in folder.iterdir()} == left
