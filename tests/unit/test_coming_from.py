"""docs/coming_from.md: what people do with other simulators, done here."""

import re
from typing import Any

import numpy as np
import pytest
from torch import nn

from support.places import ROOT

PAGE = (ROOT / "docs/coming_from.md").read_text(encoding="utf-8")
THINGS = PAGE.partition("## Ten things")[2].partition("\n## ")[0]


def test_ten_things_in_as_many_lines(capsys: pytest.CaptureFixture[str]) -> None:
    first, *blocks = re.findall(r"^```python\n(.*?)^```", THINGS, re.MULTILINE | re.DOTALL)
    assert re.findall(r"^(\d+)\. ", THINGS, re.MULTILINE) == [*map(str, range(1, 11))]
    assert len(blocks) == 10
    random = np.random.default_rng(0)
    labels = [random.permutation(np.arange(24) % 2) for _ in range(5)]

    def samples(y: Any) -> tuple[Any, Any]:
        x = random.normal(size=(len(y), 3)) + 2 * y[:, None]
        return x.astype(np.float32), y.astype(np.int64)

    names: dict[str, Any] = {
        "net": nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)),
        "clients": list(map(samples, labels)),
        "test": samples(labels[0]),
    }
    for block in (first, *blocks):
        exec(block, names)
    manifests = {
        name: names[name].manifest
        for name in ("run", "robust", "adaptive", "prox", "alone", "pooled", "personal", "sparse",
                     "confident", "stopped")
    }  # fmt: skip
    assert {each["status"] for each in manifests.values()} == {"finished"}
    assert manifests["robust"]["run"]["attack"]["kind"] == "sign_flip"
    assert manifests["adaptive"]["run"]["hyperparameters"]["fedadam"]["tau"] == 0.01
    assert manifests["prox"]["run"]["hyperparameters"]["fedprox"]["mu"] == 0.1
    assert manifests["confident"]["run"]["hyperparameters"]["confident"]["weight"] == 0.2
    assert manifests["sparse"]["bytes_up"] < manifests["run"]["bytes_up"] * 5 / 2
    assert "stopped" in manifests["stopped"] and manifests["stopped"]["rounds_done"] < 20
    said = capsys.readouterr().out.splitlines()
    assert len(said) == manifests["stopped"]["rounds_done"]
