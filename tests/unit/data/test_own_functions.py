"""Data that a function of one's own returns: found by its name, known by its code and content."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import fedrepro as fr
from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.data.dataset import open_dataset
from fedrepro.data.prepare import prepare
from fedrepro.run.standing import prepared_differences
from fedrepro.support import plugins
from support.places import ROOT

WAVES = """
import random
import numpy as np
from waves_helper import OFFSET

def waves(samples=6, path=None):
    if path is not None:
        return dict(np.load(path))
    x = np.random.normal(size=(samples, 3)) + OFFSET + random.random()
    return {"x": x, "y": np.arange(samples) % 2, "client": ["a", "b"] * (samples // 2)}
"""
ENTRY = """datasets:
  mine:
    kind: plugin
    function: waves
    title: mine
    licence: mine
    citation: none
"""
CONFIG = "plugins: { data: sources }\n"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "bench"
    shutil.copytree(ROOT / "workflow/skeleton/config", root / "config")
    shutil.rmtree(root / "config/experiments")
    (root / "sources").mkdir()
    (root / "sources/waves.py").write_text(WAVES)
    (root / "sources/waves_helper.py").write_text("OFFSET = 1.0\n")
    (root / "config/config.yaml").write_text(CONFIG)
    (root / "config/datasets.yaml").write_text(ENTRY)
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(str(root / "sources"))
    return root


def forget() -> None:
    """As in another process."""
    plugins.content_of.cache_clear()
    plugins.import_file.cache_clear()
    plugins.parse.cache_clear()


def test_what_a_function_returns_is_a_data_set(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget()
    assert main(["check-data", "mine", "--set", "test_fraction=0.5"]) == 0
    out = capsys.readouterr().out
    assert "clients\t2 natural ones" in out and "data\tsources/waves.py, plugin\n" in out
    assert main(["prepare", "mine"]) == 0
    first = open_dataset("mine")
    assert first.train.x.shape == (6, 3) and first.group_names == ["a", "b"]
    assert main(["prepare", "mine", "--again"]) == 0  # what it draws is the same each time
    assert open_dataset("mine").meta["content_sha256"] == first.meta["content_sha256"]
    (bench / "config/datasets.yaml").write_text(f"{ENTRY}    arguments: {{ samples: 8 }}\n")
    assert main(["prepare", "mine"]) == 0
    assert len(open_dataset("mine").train) == 8

    np.savez("made.npz", x=np.zeros((4, 2)), y=[0, 1, 0, 1])
    (bench / "config/datasets.yaml").write_text(f"{ENTRY}    path: made.npz\n")
    assert main(["prepare", "mine"]) == 0
    assert len(open_dataset("mine").train) == 3  # 0.2 of each class are for testing


TOWERS = """
import torch
from torch import nn

class TwoTowers(nn.Module):
    def __init__(self, item):
        super().__init__()
        self.users, self.items = nn.Embedding(5, 2), nn.Linear(*item, 2)

    def forward(self, user, item):
        return self.users(user) * self.items(item)

def towers(shapes, outputs):
    assert outputs == 2
    return TwoTowers({})
"""
EXPERIMENT = """
system: own
title: Own
paper: none
settings:
  s:
    dataset: mine
    partition: { scheme: natural, test_fraction: 0.5 }
    model: towers
    rounds: 1
    participation: 1
    epochs: 1
    batch_size: 2
    optimizer: { lr: 0.1 }
    evaluate: { clients: true }
  ours: { extends: s, model: logistic }
"""


@pytest.mark.parametrize(
    ("x", "item"),
    [
        ("{'item': np.ones((8, 3)), 'user': np.arange(8) % 5}", 'shapes["item"]'),
        ("(np.arange(8) % 5, np.ones((8, 3)))", "shapes[1]"),
    ],
)
def test_samples_of_a_workbench_may_have_several_inputs(
    bench: Path, x: str, item: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forget()
    returned = f"{{'x': {x}, 'y': np.arange(8) % 2, 'client': np.arange(8) // 4}}"
    (bench / "sources/waves.py").write_text(
        f"import numpy as np\n\ndef waves():\n    return {returned}\n"
    )
    for folder, name, text in (
        ("models", "towers.py", TOWERS.format(item)),
        ("config/experiments", "own.yaml", EXPERIMENT),
    ):
        (bench / folder).mkdir()
        (bench / folder / name).write_text(text)
    (bench / "config/config.yaml").write_text("plugins: { data: sources, models: models }\n")
    assert main(["run", "own/s", "fedavg", "--seed", "1"]) == 0
    model = fr.load("own/s", "fedavg").model
    assert model(torch.tensor([4]), torch.ones(1, 3)).shape == (1, 2)
    assert main(["run", "own/ours", "fedavg", "--seed", "1"]) == 2
    assert "several inputs" in capsys.readouterr().err.splitlines()[-1]


def test_its_code_and_that_of_its_helpers_are_known_by_their_bytes(bench: Path) -> None:
    (bench / "config/experiments").mkdir()
    shutil.copy(
        ROOT / "workflow/skeleton/config/experiments/mine.yaml", "config/experiments/mine.yaml"
    )
    text = Path("config/experiments/mine.yaml").read_text()
    Path("config/experiments/mine.yaml").write_text(
        f"{text[: text.index('settings:')]}settings: {{}}\n"
    )

    def differing() -> list[str]:
        forget()
        return [str(each) for each in prepared_differences(load(), "mine")]

    forget()
    prepare("mine", load().datasets["mine"])
    assert differing() == []
    helper = bench / "sources/waves_helper.py"
    helper.write_text("OFFSET = 2.0\n")
    (changed,) = differing()
    helper.write_text("OFFSET = 1.0\n")
    assert differing() == []
    (bench / "sources/waves.py").write_text(f"{WAVES}\n# other\n")
    assert differing() == [changed]


@pytest.mark.parametrize(
    ("code", "entry", "said"),
    [
        (WAVES, ENTRY.replace("waves", "wavs"), "function: 'wavs':"),
        ("waves = 1", ENTRY, r"sources/waves.py: .* waves\n"),
        ("def waves():\n    return [1]", ENTRY, r"sources/waves.py: .*\blist\b.*\bdict\b"),
        ("def waves():\n    return 1 / 0", ENTRY, "waves.py:2: waves: ZeroDivisionError"),
        ("def waves():\n    return {'x': [[1.0]]}", ENTRY, r" y: .* x\n"),
        (WAVES, f"{ENTRY}    arguments: {{ size: 8 }}\n", "TypeError: .*'size'"),
        ("import os\ndef waves():\n    os._exit(0)", ENTRY, "waves.py:3: waves"),
    ],
)
def test_a_function_that_makes_no_data_set_is_one_line(
    bench: Path, code: str, entry: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forget()
    (bench / "sources/waves.py").write_text(code)
    (bench / "config/datasets.yaml").write_text(entry)
    assert main(["prepare", "mine"]) == 2
    line = capsys.readouterr().err
    assert re.search(said, line) and line.count("\n") == 1
    assert not Path("results/data/mine").exists()


def test_without_a_folder_of_functions_the_key_is_named(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (bench / "config/config.yaml").write_text("{}\n")
    assert main(["prepare", "mine"]) == 2
    assert "`plugins.data` in config/config.yaml" in capsys.readouterr().err
