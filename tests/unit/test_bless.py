"""`make bless`: which parts of the code keep their numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedrepro.provenance import numerics
from support.places import ROOT
from support.scripts import script

SCRIPTS = ROOT / "scripts"
PARTITION = 'partition {"scheme": "paired_shards", "clients": 10}'


@pytest.fixture(scope="module")
def bless() -> ModuleType:
    return script("bless")


def played(*parts: str, bits: str = "a") -> dict[str, Any]:
    return {"parts": [*parts], "rounds": [bits, bits]}


BEFORE = {
    "fedavg in plain sequential": played("core", "model twonn"),
    "fedprox in plain": played("method fedprox", "model twonn"),
    "model twonn": played("model twonn"),
}


def test_parts_with_equal_bits_keep_their_numbers(bless: ModuleType) -> None:
    assert bless.differences({"core", "method fedprox"}, BEFORE, BEFORE) == {}


def test_other_bits_are_other_numbers(bless: ModuleType) -> None:
    after = {**BEFORE, "fedprox in plain": played("method fedprox", "model twonn", bits="b")}
    reasons = bless.differences({"core", "method fedprox"}, BEFORE, after)
    assert reasons.keys() == {"method fedprox"}


@pytest.mark.parametrize(
    ("columns", "keeps"),
    [
        (["x", "y"], True),
        (["x", "y", "new"], True),
        (["x", "new"], False),
        (["x", "x", "y"], True),
        (["x"], False),
    ],
)
def test_a_column_more_changes_no_number(
    bless: ModuleType, columns: list[str], keeps: bool
) -> None:
    name, parts = "fedprox in plain", ["method fedprox"]
    before, after = ["a", "state", ["x", "y"]], ["b", "state", columns]
    was, now = (
        {name: {"parts": parts, "rounds": [[*entry, []], entry]}} for entry in (before, after)
    )
    assert (bless.differences({"method fedprox"}, was, now) == {}) is keeps
    changed = {name: {"parts": parts, "rounds": [["b", "other", ["x", "y"], []], before]}}
    assert bless.differences({"method fedprox"}, was, changed)
    whole = {name: {"parts": parts, "rounds": ["a", "a"]}}  # as it was written before
    assert bless.differences({"method fedprox"}, whole, was) == {}
    assert bless.differences({"method fedprox"}, whole, now)


def test_a_new_micro_run_that_the_old_code_cannot_play_changes_no_part(bless: ModuleType) -> None:
    after = {**BEFORE, "fedavg in novel sequential": played("core", "model twonn")}
    assert bless.differences({"core"}, BEFORE, after) == {}


def test_a_part_that_only_new_micro_runs_play_has_not_been_compared(bless: ModuleType) -> None:
    after = {**BEFORE, "fedsam in plain": played("method fedsam", "model twonn")}
    assert bless.differences({"method fedsam"}, BEFORE, after).keys() == {"method fedsam"}


def test_runs_on_data_of_another_identity_are_not_compared(bless: ModuleType) -> None:
    """A result of the old code would not count as one of the new code anyway."""
    before = {"fedavg in table": {**played("core"), "data": {"content_sha256": "x"}}}
    before["fedavg in plain"] = played("core")
    other = {"content_sha256": "x", "missing_sha256": None}
    after = {"fedavg in table": {**played("core", bits="b"), "data": other}}
    after["fedavg in plain"] = played("core")
    assert bless.differences({"core"}, before, after) == {}
    after["fedavg in table"]["data"] = before["fedavg in table"]["data"]
    assert bless.differences({"core"}, before, after).keys() == {"core"}


def test_a_new_micro_run_is_played_with_both_codes(
    bless: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blessed commit's list lacks it, so today's list is played with the commit's code."""
    new = "fedavg in novel sequential"
    now = {**BEFORE, new: played("core", bits="b")}

    def of_commit(commit: str, names: tuple[str, ...] = ()) -> dict[str, Any]:
        return {new: played("core", bits="a")} if names else dict(BEFORE)

    monkeypatch.setattr(bless, "_play_commit", of_commit)
    monkeypatch.setattr(bless, "_play", lambda tree, parts: now)
    monkeypatch.setattr(bless, "_files", lambda commit: "")
    assert bless._differing({"core"}, "commit").keys() == {"core"}
    now[new] = played("core", bits="a")
    assert bless._differing({"core"}, "commit") == {}


def test_a_renamed_part_is_compared_under_its_new_name(
    bless: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = {"method fedprox": "method proximal", "model twonn": "model two_layers"}
    monkeypatch.setattr(numerics, "RENAMED", renamed)
    before = bless.with_new_names(BEFORE)
    assert before["proximal in plain"]["parts"] == ["method proximal", "model two_layers"]
    assert "model two_layers" in before
    assert "fedavg in plain sequential" in before
    after = json.loads(json.dumps(before))
    assert bless.differences({"method proximal", "model two_layers"}, before, after) == {}


def test_a_run_of_a_renamed_part_counts_as_made_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "RENAMED", {"method former": "method fedprox"})
    assert numerics.recorded({"core": "1", "method former": "2"}) == {
        "core": "1",
        "method fedprox": "2",
    }


def test_chosen_micro_runs_are_played_and_unknown_ones_are_left_out(tmp_path: Path) -> None:
    out = tmp_path / "played.json"
    command = [sys.executable, str(SCRIPTS / "micro_runs.py"), str(out), "--only", PARTITION, "no"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert [*json.loads(out.read_text(encoding="utf-8"))] == [PARTITION]
