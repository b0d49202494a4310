"""The script for a quarter of an hour on a GPU, rehearsed on the CPU."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.places import ROOT

SCRIPT = ROOT / "scripts/gpu_quarter_hour.py"

# One part fails before its first row; one has a row that hangs, one that fails, one that dies.
WRAPPED = """
import os, sys, time
from dataclasses import replace
sys.path.insert(0, {scripts!r})
import gpu_quarter_hour as script

def refuses(options):
    raise RuntimeError("no rows today")

def troubled(options, row):
    if row == "hangs":
        time.sleep(60)
    if row == "dies":
        os._exit(11)
    if row == "fails":
        raise ValueError("as planned")
    if row == "lacks":
        raise ImportError("another version")
    return {{"value": 1 / 3}}

names = ["good", "hangs", "fails", "dies", "lacks", "fine"]
part = script.PARTS["1"]
script.PARTS["1"] = replace(part, rows=lambda options: ["versions", "launch", "recorded step"])
script.PARTS["2"] = replace(part, rows=refuses)
script.PARTS["3"] = replace(part, rows=lambda options: names, row=troubled, seconds=2)
script.START = 20
script.main()
"""


def rows_of(out: Path) -> dict[str, dict[str, Any]]:
    lines = (out / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    return {found["row"]: found for found in map(json.loads, lines)}


def carry_out(script: Path, out: Path, *more: str, cwd: Path = ROOT) -> str:
    command = [sys.executable, script, "--device", "cpu", "--tiny", "--out", out, *more]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=True, cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    return done.stdout + done.stderr


def test_what_fails_dies_or_hangs_costs_only_itself(tmp_path: Path) -> None:
    wrapper = tmp_path / "wrapper.py"
    wrapper.write_text(WRAPPED.format(scripts=str(SCRIPT.parent)), encoding="utf-8")
    said = carry_out(wrapper, tmp_path / "out", "--parts", "1,2,3:50")
    found = rows_of(tmp_path / "out")
    assert found["launch"]["told_us"] > 0 and "no GPU" in found["recorded step"]["not_there"]
    assert "no rows today" in said
    assert found["good"]["value"] == found["fine"]["value"]
    assert "overran" in found["hangs"]["failed"]
    assert "as planned" in found["fails"]["failed"] and found["fails"]["traceback"]
    assert found["dies"]["status"] == 11
    assert "another version" in found["lacks"]["not_there"]
    table = (tmp_path / "out/table.md").read_text(encoding="utf-8")
    assert "hangs" in table and "told_us" in table


def test_a_part_ends_with_its_time(tmp_path: Path) -> None:
    wrapper = tmp_path / "wrapper.py"
    text = WRAPPED.replace('"good", ', "").replace("seconds=2", "seconds=50")
    wrapper.write_text(text.format(scripts=str(SCRIPT.parent)), encoding="utf-8")
    carry_out(wrapper, tmp_path / "out", "--parts", "3:4,1")
    found = rows_of(tmp_path / "out")
    assert {found[row]["failed"] for row in ("hangs", "fails", "fine")} == {"no time left"}
    assert found["launch"]["told_us"] > 0


def test_equality_and_rates_are_rehearsed(tmp_path: Path) -> None:
    """A few rows of each kind, with the tape in place of CUDA graphs."""
    for part, only in (("2", "fedavg"), ("2", "model: superfed"), ("3", "W1")):
        carry_out(SCRIPT, tmp_path, "--parts", f"{part}:100", "--only", only)
    found = rows_of(tmp_path)
    assert not [row for row, each in found.items() if "failed" in each]
    checked = {row: each for row, each in found.items() if "equal" in each}
    assert {"graph: fedavg", "lanes: fedavg", "layers: fedavg, adam"} <= checked.keys()
    assert all(each["equal"] and each["finite"] for each in checked.values())
    assert checked["graph: fedavg"]["replayed"] > checked["graph: fedavg"]["recorded"] > 0
    assert found["W1 | graph"]["sum"] == found["W1 | eager"]["sum"]
    assert found["W1 | graph"]["steps/s"] > 0 and found["W1 | bare"]["steps/s"] > 0


def test_a_reference_run_is_packed_and_landed_once(tmp_path: Path) -> None:
    """In a workbench without results; the run is one of scale demo, for its seconds."""
    here, back = tmp_path / "bench", tmp_path / "back"
    shutil.copytree(ROOT / "config", here / "config")
    (here / "queue").write_text("superfed/mnist5k-demo fedavg 1\nsuperfed/mnist5k-demo oops 1\n")
    parts = ("--parts", "4:100", "--queue", "queue", "--workers", "1")
    carry_out(SCRIPT, back, *parts, cwd=here)
    found = rows_of(back)
    assert found["superfed/mnist5k-demo fedavg 1"]["state"] == "finished"
    assert "oops" in found["superfed/mnist5k-demo oops 1"]["failed"]
    reference = here / "reports/papers/superfed/reference/mnist5k-demo/fedavg/seed1"
    assert not reference.exists()
    said = carry_out(SCRIPT, back, "--land", str(back), cwd=here)
    assert "kept:" in said and (reference / "manifest.json").exists()
    assert not (reference / "model.safetensors").exists()
    record = json.loads((here / "reports/papers/superfed/landed.json").read_text())
    assert record["reference/mnist5k-demo: fedavg"]["seed 1"]
    again = carry_out(SCRIPT, back, "--land", str(back), cwd=here)
    assert "landed already" in again and "kept:" not in again
