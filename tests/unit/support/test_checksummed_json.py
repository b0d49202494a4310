"""A sealed file is what it says and nothing else: every change of it is found."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fedrepro.support import checksummed_json
from fedrepro.support.checksummed_json import fault, in_lines, place, seal_of, sealed
from fedrepro.support.errors import UserError
from support.refusals import refused

CONTENT: dict[str, Any] = {
    "of": {"a": "1", "b": "2"}, "rows": [{"x": 1, "y": None}, {"x": 1.5, "y": "é"}], "none": [],
    "zero": 0, "false": False, "text": "", "went_on_from": {"method": "fedavg", "round": 3},
}  # fmt: skip
WHAT = "studies/x"


def changes(value: Any) -> list[Any]:
    """Other values of each kind, also those that compare equal in Python."""
    if isinstance(value, dict):
        first = next(iter(value))
        fewer = {key: each for key, each in value.items() if key != first}
        return [fewer, {**value, "more": 1}, {**value, first: "other"}]
    if isinstance(value, list):
        return [[*value, 1], value[1:] or [0], value[::-1] if len(value) > 1 else None]
    if value is False:
        return [0, True, None]  # 0 == False
    return [1 if value == 0 else f"{value} ", None]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "results/studies/x.json"
    checksummed_json.write(path, CONTENT, WHAT)
    found = checksummed_json.read(path, WHAT)
    assert {key: found[key] for key in CONTENT} == CONTENT and found["what"] == WHAT
    assert json.loads(path.read_text(encoding="utf-8")) == found == sealed(CONTENT, WHAT)
    assert fault(found, WHAT) == fault(found) == ""
    again = tmp_path / "again.json"
    checksummed_json.write(again, dict(reversed(CONTENT.items())), WHAT)
    assert json.loads(again.read_bytes())["seal"] == found["seal"]  # in whatever order


@pytest.mark.parametrize("key", [*CONTENT, "what", "seal"])
def test_every_change_is_found_but_that_of_how_it_came_about(tmp_path: Path, key: str) -> None:
    whole = sealed(CONTENT, WHAT)
    path = tmp_path / "x.json"
    fewer = {name: value for name, value in whole.items() if name != key}
    kept = (None,) if key != "seal" else ()
    others = [fewer, *({**whole, key: value} for value in (*changes(whole[key]), *kept))]
    for changed in others:
        if changed.get(key, fewer) == whole[key] and type(changed[key]) is type(whole[key]):
            continue
        damaged = key != "went_on_from"
        assert bool(fault(changed, WHAT)) == damaged, changed
        path.write_text(json.dumps(changed), encoding="utf-8")
        if damaged:
            with refused("damaged", file="x.json"):
                checksummed_json.read(path, WHAT)
        else:
            assert checksummed_json.read(path, WHAT) == changed


def test_a_file_in_another_s_place_is_none_of_it(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    checksummed_json.write(path, CONTENT, "studies/y")
    with refused("damaged", file="shown", names=("studies/y", "studies/x", "again")):
        checksummed_json.read(path, WHAT, Path("shown"), "again")
    assert fault(json.loads(path.read_bytes())) == ""
    nameless = {"a": 1}  # a manifest's kind of seal makes it no other file
    assert fault({**nameless, "seal": seal_of(nameless)}) == ""
    assert fault({**nameless, "seal": seal_of(nameless)}, WHAT)
    with pytest.raises(ValueError, match="studies/y"):
        checksummed_json.checked(path, WHAT)


@pytest.mark.parametrize("text", ["[1]", "1", "{", "\xff", ""])
def test_what_is_no_mapping_is_damaged_and_what_is_missing_is_not_there(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match="damaged"):
        checksummed_json.read(path, WHAT)
    for missing in (tmp_path / "gone.json", path / "below.json"):
        with pytest.raises(FileNotFoundError):
            checksummed_json.read(missing, WHAT)
    with refused("damaged", file=str(tmp_path), names="file"):
        checksummed_json.read(tmp_path, WHAT)


def test_each_key_and_each_element_of_a_list_has_a_line() -> None:
    text = in_lines(CONTENT)
    assert json.loads(text) == CONTENT and list(json.loads(text)) == list(CONTENT)
    lines = text.splitlines()
    assert len(lines) == 2 + len(CONTENT) + 1 + 2  # two elements, and the end of their list
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="JSON compliant"):
            in_lines({"x": [value]})


def test_the_place_of_a_file_is_its_folders_and_its_name() -> None:
    path = Path("results/quality/own/s/fedavg/seed1.json")
    assert checksummed_json.of_results(path) == "quality/own/s/fedavg/seed1"
    assert place(path, 2) == "fedavg/seed1" and place(path, 4) == "own/s/fedavg/seed1"
    assert checksummed_json.of_results(Path("results/studies/x.json")) == WHAT
