"""Users' own texts: a column of a CSV, JSON Lines or Parquet file, as ids of words."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.catalogue.entries import NUMBERS
from fedrepro.data.catalogue.kinds import Text
from fedrepro.data.readers.content import FIRST, Content, Source, Split
from fedrepro.data.readers.leaf import MARKS, UNKNOWN
from fedrepro.data.readers.own_arrays import content_of
from fedrepro.data.readers.table_files import PARQUET, parquet_arrays
from fedrepro.data.readers.tables import header_of, of_classes, table_of
from fedrepro.support.errors import bad_value, listed, refusal, refuse_unknown
from fedrepro.support.files import parse_json, read_text

PADDING, BEGIN, END = (MARKS.index(mark) for mark in ("<PAD>", "<BOS>", "<EOS>"))
SPLITTERS: dict[str, Callable[[str], list[str]]] = {
    "words": lambda text: re.findall(r"\w+|[^\w\s]", text.lower()),
    "characters": list,
}
JSON_LINES = (".jsonl", ".ndjson")
Strings = NDArray[np.object_]


def read_own_texts(spec: Text, source: Source) -> Content:
    """Texts as int32 [n, length], or [n, 2, length] with a tokenizer of transformers.

    For the task ``next_word``, texts with a mark at both ends are cut into pieces.

    Raises:
        UserError: if the file, a column or the tokenizer can't be read, or a text is empty.
    """
    path = source.path
    columns = _columns(spec, path)
    texts, generates = columns[spec.text], spec.task == "next_word"
    keys = {"client": spec.group, "split": spec.split}
    arrays: dict[str, NDArray[Any]] = {"x": np.arange(len(texts))[:, None]}
    arrays |= {key: columns[name] for key, name in keys.items() if name is not None}
    if spec.task in NUMBERS:
        y = np.stack([_numbers(columns[name], path) for name in spec.labels], axis=1)
        arrays["y"] = y if y.shape[1] > 1 or spec.task == "multi_label" else y[:, 0]
    else:
        arrays["y"] = columns[spec.labels[0]] if spec.labels else np.array(["text"] * len(texts))
    task = "classification" if generates else spec.task
    rows = content_of(arrays, task, spec.test_fraction, path)
    if spec.tokenizer not in SPLITTERS:
        every = _by_transformers(spec, texts.tolist(), path)
        content = rows.mapped(lambda part: replace(part, x=every[part.x[:, 0]]))
        return _described(content, spec, texts, "")
    split = SPLITTERS[spec.tokenizer]
    tokens = [split(text) for text in texts]
    counts = Counter(token for row in rows.train.x[:, 0] for token in tokens[row])
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    vocabulary = [*MARKS, *ranked[: spec.words - len(MARKS)]]
    numbers = {token: at for at, token in enumerate(vocabulary)}
    ids = [[numbers.get(token, UNKNOWN) for token in text] for text in tokens]
    cut = _pieces if generates else _padded
    content = rows.mapped(lambda part: cut(part, [ids[row] for row in part.x[:, 0]], spec.length))
    known = sum(counts[token] for token in vocabulary[len(MARKS) :]) / max(counts.total(), 1)
    said = f"{len(vocabulary):,} with {len(MARKS)} marks, {known:.1%} of all: "
    said += listed(vocabulary[len(MARKS) :])
    content = _described(content, spec, texts, said)
    notes = {**content.notes, "vocabulary": vocabulary}
    names = vocabulary if generates else content.class_names
    return replace(content, class_names=names, notes=notes)


def _described(content: Content, spec: Text, texts: Strings, vocabulary: str) -> Content:
    """The content with what `fedrepro check-data` shows."""
    sizes = sorted(len(text) for text in texts)
    about = f"texts of {sizes[0]} to {sizes[-1]} characters, half up to {sizes[len(sizes) // 2]}"
    uses: dict[str | None, str] = {spec.text: about, **dict.fromkeys(spec.labels, "label")}
    uses |= {spec.group: "natural clients", spec.split: "train or test"}
    seen = [(f"column {name}", use) for name, use in uses.items() if name is not None]
    first = [(f"row {at + 1}", texts[at][:200]) for at in range(min(FIRST, len(texts)))]
    doubt = "" if spec.task in NUMBERS else of_classes(content.class_names)
    understood = [*seen, ("look at", doubt), ("vocabulary", vocabulary), *first]
    names = [*spec.labels] if spec.task in NUMBERS else content.class_names
    return replace(content, class_names=names, understood=understood)


def _padded(part: Split, ids: Sequence[Sequence[int]], length: int) -> Split:
    """The first ``length`` tokens of each text."""
    x = np.full((len(ids), length), PADDING, np.int32)
    for row, each in enumerate(ids):
        x[row, : len(each)] = each[:length]
    return replace(part, x=x)


def _pieces(part: Split, ids: Sequence[Sequence[int]], length: int) -> Split:
    """Pieces of ``length`` tokens, and for each token the next one."""
    x, y, texts = [], [], []
    for row, each in enumerate(ids):
        whole = [BEGIN, *each, END]
        for first in range(0, len(whole) - 1, length):
            piece = whole[first : first + length + 1]
            piece += [PADDING] * (length + 1 - len(piece))
            x.append(piece[:-1])
            y.append(piece[1:])
            texts.append(row)
    group = None if part.group is None else part.group[texts]
    return Split(np.array(x, np.int32), np.array(y, np.int64), group)


def _columns(spec: Text, path: Path) -> dict[str, Strings]:
    """The columns that the entry names, as text, by name."""
    named = (spec.text, *spec.labels, spec.group, spec.split)
    names = [name for name in named if name is not None]
    suffix, table = path.suffix.lower(), dict[str, Any]()
    if suffix in JSON_LINES:
        table = _json_lines(path, names)
    elif suffix in PARQUET:
        table = parquet_arrays(path, names)
    else:
        refuse_unknown(path, "column", names, header_of(path))
        frame = table_of(path, names, ())
        table = {name: frame[name].fillna("") for name in names}
    read = {}
    for name in names:
        cells = np.array([str(cell) for cell in table[name]], object)
        for row, (cell, value) in enumerate(zip(cells, table[name], strict=True), 1):
            if not cell.strip() or value != value:  # NaN
                raise refusal(path, f"{name}: row {row} is empty: expected some text", name)
        read[name] = cells
    return read


def _json_lines(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """The values of some keys in every line."""
    table: dict[str, list[Any]] = {name: [] for name in names}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            content = parse_json(line)
        except ValueError as error:
            raise refusal(where, f"not JSON: {error}", code="unreadable") from None
        if not isinstance(content, dict):
            raise refusal(where, "expected an object, such as {'text': ...}")
        refuse_unknown(where, "column", names, content)
        for name in names:
            if not isinstance(content[name], str | int | float):
                raise bad_value(where, name, content[name], "text or a number")
            table[name].append(content[name])
    return table


def _numbers(cells: Strings, path: Path) -> NDArray[np.float64]:
    try:
        return cells.astype(np.float64)
    except ValueError as error:
        why = f"label: {error}: expected numbers for a regression"
        raise refusal(path, why, "label") from None


def _by_transformers(spec: Text, texts: list[str], where: Path) -> NDArray[np.int32]:
    """Ids and attention mask [n, 2, length] by a tokenizer of transformers.

    Raises:
        UserError: if there is no such tokenizer, or it can't pad.
    """
    if spec.task == "next_word":
        wanted = f"{' or '.join(SPLITTERS)} for the task next_word"
        raise bad_value(where, "tokenizer", spec.tokenizer, wanted, SPLITTERS)
    try:
        from transformers import AutoTokenizer
    except ImportError:
        repair = f"`pip install 'fedrepro[text]'`, or use {' or '.join(SPLITTERS)}"
        why = f"tokenizer {spec.tokenizer}: transformers is not installed: {repair}"
        raise refusal(where, why, "tokenizer", spec.tokenizer, "missing") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(spec.tokenizer)
        made = tokenizer(texts, truncation=True, padding="max_length", max_length=spec.length)
    except Exception as error:  # the library raises many kinds
        reason = str(error).strip().partition("\n")[0]
        wanted = f"one that can be loaded and pads: {reason}"
        raise bad_value(where, "tokenizer", spec.tokenizer, wanted, SPLITTERS) from None
    return np.array([made["input_ids"], made["attention_mask"]], np.int32).transpose(1, 0, 2)
