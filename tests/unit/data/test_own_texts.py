"""Users' own texts: words or characters as ids, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from fedrepro.data.dataset import Dataset, open_dataset
from fedrepro.data.prepare import prepare
from support.raw_data import entry
from support.refusals import Fault, refused

ROWS = [
    {"review": "Good, good food", "stars": 10, "shop": "a", "part": "train"},
    {"review": "bad food!", "stars": 2, "shop": "b", "part": "train"},
    {"review": "Good", "stars": 10, "shop": "a", "part": "train"},
    {"review": "unseen food", "stars": 2, "shop": "b", "part": "test"},
]
COLUMNS = {"text": "review", "label": "stars", "group": "shop", "split": "part"}


def written(tmp_path: Path, form: str, rows: list[dict[str, Any]] = ROWS) -> Path:
    path = tmp_path / f"own.{form}"
    if form == "csv":
        lines = [",".join(f'"{each}"' for each in row.values()) for row in rows]
        path.write_text("\n".join([",".join(rows[0]), *lines, ""]), encoding="utf-8")
    elif form == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    else:
        pq.write_table(pa.table({key: [row[key] for row in rows] for key in rows[0]}), path)
    return path


def prepared(tmp_path: Path, path: Path, **keys: Any) -> Dataset:
    spec = entry("text", path=str(path), **{"length": 4, **keys})
    prepare("own", spec, downloads=tmp_path / "downloads", root=tmp_path / "data")
    return open_dataset("own", tmp_path / "data")


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_words_are_numbered_by_how_often_training_texts_have_them(
    tmp_path: Path, form: str
) -> None:
    dataset = prepared(tmp_path, written(tmp_path, form), **COLUMNS)
    assert dataset.test is not None
    words = dataset.meta["vocabulary"][4:]
    assert words == ["good", "food", "!", ",", "bad"]
    assert dataset.train.x.tolist() == [[4, 7, 4, 5], [8, 5, 6, 0], [4, 0, 0, 0]]
    assert dataset.test.x.tolist() == [[1, 5, 0, 0]]
    assert dataset.meta["class_names"] == ["2", "10"]
    assert dataset.train.y.tolist() == [1, 0, 1]
    assert dataset.group_names == ["a", "b"]


def test_characters_a_small_vocabulary_and_numbers_to_predict(tmp_path: Path) -> None:
    path = written(tmp_path, "csv")
    keys = {"text": "review", "label": "stars", "test_fraction": 0, "words": 6}
    dataset = prepared(tmp_path, path, tokenizer="characters", length=3, **keys)
    assert dataset.meta["vocabulary"][4:] == ["o", "d"]
    assert dataset.train.x.tolist()[0] == [1, 4, 4]
    numbers = prepared(tmp_path, path, task="regression", **keys)
    assert numbers.train.y.tolist() == [10, 2, 10, 2]
    rows = [{**row, "warm": at % 2, "new": 1} for at, row in enumerate(ROWS)]
    path = written(tmp_path, "jsonl", rows)
    alone = prepared(tmp_path, path, **{**keys, "task": "multi_label", "label": ["warm"]})
    assert alone.train.y.tolist() == [[0], [1], [0], [1]] and alone.outputs == 1
    several = prepared(tmp_path, path, **{**keys, "task": "multi_label", "label": ["warm", "new"]})
    assert several.train.y.tolist() == [[0, 1], [1, 1], [0, 1], [1, 1]]
    assert several.meta["class_names"] == ["warm", "new"]


def test_pieces_of_texts_predict_each_next_word(tmp_path: Path) -> None:
    path = written(tmp_path, "csv")
    dataset = prepared(
        tmp_path, path, text="review", group="shop", split="part", task="next_word", length=3
    )
    good, food, mark, comma, bad = range(4, 9)
    assert dataset.train.x.tolist() == [
        [2, good, comma], [good, food, 3], [2, bad, food], [mark, 3, 0], [2, good, 3],
    ]  # fmt: skip
    assert dataset.train.y.tolist() == [
        [good, comma, good], [food, 3, 0], [bad, food, mark], [3, 0, 0], [good, 3, 0],
    ]  # fmt: skip
    assert dataset.train.group is not None
    assert dataset.train.group.tolist() == [0, 0, 1, 1, 0]
    assert (dataset.task, dataset.classes) == ("next_word", 9)


def test_a_tokenizer_of_transformers_gives_ids_and_mask(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "food", "bad", ",", "!"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    folder = str(tmp_path / "tokenizer")
    transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(folder)
    path = written(tmp_path, "csv")
    keys = {"text": "review", "label": "stars", "test_fraction": 0, "tokenizer": folder}
    dataset = prepared(tmp_path, path, length=5, **keys)
    assert dataset.input_shape == (2, 5)
    assert dataset.train.x[2].tolist() == [[2, 4, 3, 0, 0], [1, 1, 1, 0, 0]]
    file = next(Path(folder).glob("tokenizer.json"))
    file.write_text(
        file.read_text().replace('"good": 4', '"good": 6').replace('"bad": 6', '"bad": 4')
    )
    changed = prepared(tmp_path, path, length=5, **keys)  # the same entry and texts
    assert changed.train.x[2, 0].tolist() == [2, 6, 3, 0, 0]
    with refused(key="tokenizer", names="next_word"):
        prepared(tmp_path, path, text="review", task="next_word", tokenizer=folder)
    with refused(key="tokenizer", value="word"):
        prepared(tmp_path, path, text="review", label="stars", tokenizer="word")


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_texts_that_are_not_what_they_should_be_are_one_line(tmp_path: Path, form: str) -> None:
    path = written(tmp_path, form)
    with refused(key="column", value="reviews", names="'review'"):
        prepared(tmp_path, path, text="reviews", label="stars")
    with refused("value", key="label", names="regression"):
        prepared(tmp_path, path, text="review", label="shop", task="regression")
    path = written(tmp_path, form, [*ROWS[:3], {**ROWS[3], "review": " "}])
    with refused("value", key="review", names="4"):
        prepared(tmp_path, path, text="review", label="stars")


def test_rows_of_other_lengths_and_odd_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    for row, code, names in (("good", "value", ("3", "1")), ("good,1,2", "unreadable", ("4", "3"))):
        path.write_text(f"review,stars\na,1\nb,0\n{row}\n")
        with refused(code, file="own.csv", names=names):
            prepared(tmp_path, path, text="review", label="stars")
    lines = written(tmp_path, "jsonl", [{**ROWS[0], "review": "a\u2028b"}, *ROWS[1:3]])
    lines.write_text(lines.read_text().replace("\\u2028", "\u2028"), encoding="utf-8")
    dataset = prepared(tmp_path, lines, text="review", label="stars", test_fraction=0)
    assert len(dataset.train) == 3


def test_damaged_lines_and_keys_that_do_not_go_together_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    faults: dict[str, Fault] = {
        '{"review": ': Fault(code="unreadable", file="own.jsonl:2"),
        "[1]": Fault(code="value", file="own.jsonl:2"),
        '{"review": "a"}': Fault(file="own.jsonl:2", key="column", value="stars"),
        '{"review": ["a"], "stars": 1}': Fault(file="own.jsonl:2", key="review", value=["a"]),
        '{"review": null, "stars": 1}': Fault(file="own.jsonl:2", key="review", value=None),
    }
    for line, fault in faults.items():
        path.write_text(f"{json.dumps(ROWS[0])}\n{line}\n")
        with refused(**fault):
            prepared(tmp_path, path, text="review", label="stars")
    for keys in ({}, {"label": "y", "task": "next_word"}):
        with pytest.raises(ValidationError, match=r"`label`.*`task: next_word`"):
            entry("text", path="x", text="t", length=4, **keys)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("key", ["stars", "shop", "review"])
def test_a_number_that_is_none_is_missing(tmp_path: Path, form: str, key: str) -> None:
    """pandas and Python's json write a missing number as NaN."""
    rows = [{**row, key: float(at)} for at, row in enumerate(ROWS)]
    path = written(tmp_path, form, [rows[0], {**rows[1], key: float("nan")}, *rows[2:]])
    with refused("value", key=key, names="2"):
        prepared(tmp_path, path, **COLUMNS)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_clients_classes_and_texts_are_called_as_the_file_writes_them(
    tmp_path: Path, form: str
) -> None:
    names = ["007", "7", "7.0", "NA"]
    rows = [{"review": name, "stars": name, "shop": name} for name in names]
    keys = {"text": "review", "label": "stars", "group": "shop", "length": 8, "test_fraction": 0}
    data = prepared(tmp_path, written(tmp_path, form, rows), tokenizer="characters", **keys)
    assert data.group_names == data.meta["class_names"] == names
    assert (data.train.x > 0).sum(1).tolist() == [3, 1, 3, 2]


def test_ids_are_stored_as_whole_numbers(tmp_path: Path) -> None:
    dataset = prepared(tmp_path, written(tmp_path, "csv"), **COLUMNS)
    assert dataset.train.x.dtype == np.int32


def test_a_key_that_a_line_has_twice_is_refused(tmp_path: Path) -> None:
    """The last one counted, so that a sample had another label."""
    path = written(tmp_path, "jsonl")
    first, *rest = path.read_text(encoding="utf-8").split("\n")
    twice = first[:-1] + ', "stars": 9}'
    path.write_text("\n".join([twice, *rest]), encoding="utf-8")
    with refused("unreadable", file="own.jsonl:1", names="'stars'"):
        prepared(tmp_path, path, **COLUMNS)
