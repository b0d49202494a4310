"""Texts as token ids: medical question pairs, and LEAF's Reddit."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.data.catalogue.kinds import LeafReddit, QuestionPairs
from fedrepro.data.readers import leaf
from fedrepro.data.readers.content import Content, Progress, Split
from fedrepro.data.readers.csv_tables import read_table
from fedrepro.support.errors import refusal, unreadable

# The first ids of Reddit's vocabulary; they are not words (fedrepro.engine.task.WORDLESS).
MARKS = ("<PAD>", "<UNK>", "<BOS>", "<EOS>")
UNKNOWN = MARKS.index("<UNK>")


def read_question_pairs(
    spec: QuestionPairs, folder: Path, _scratch: Path, _progress: Progress
) -> Content:
    """Pairs as int32 [n, 2, length]: ids of word pieces, and the attention mask.

    Raises:
        UserError: if the file is damaged, or the tokenizer's vocabulary or library is missing.
    """
    path = folder / spec.file.name
    columns = ["doctor", "first", "second", "label"]
    table = read_table(path, header=None, names=columns, index_col=False)
    if table.empty or table.isna().any(axis=None) or not table["label"].isin([0, 1]).all():
        raise refusal(path, "expected rows of doctor, question, question, 0 or 1")
    tokenizer = _tokenizer(spec)
    pairs = tokenizer.encode_batch(list(zip(table["first"], table["second"], strict=True)))
    x = np.array([[pair.ids, pair.attention_mask] for pair in pairs], np.int32)
    doctors, group = np.unique(table["doctor"].to_numpy(), return_inverse=True)
    return Content(
        train=Split(x, table["label"].to_numpy(np.int64), group),
        class_names=["different", "same"],
        notes={"groups": doctors.tolist(), "words": tokenizer.get_vocab_size()},
    )


def _tokenizer(spec: QuestionPairs) -> Any:
    words = Path(spec.tokenizer) / "vocab.txt"
    if not words.is_file():
        repair = f"put vocab.txt of distilbert-base-uncased into {spec.tokenizer}"
        why = f"{repair}, or change `tokenizer` in config/datasets.yaml"
        raise refusal(words, f"there is no such file: {why}", code="missing")
    try:
        from tokenizers import BertWordPieceTokenizer
    except ImportError:
        why = "it needs tokenizers, which is not installed: `pip install '.[text]'` in the clone"
        raise refusal(words, why, "tokenizers", code="missing") from None
    try:
        tokenizer = BertWordPieceTokenizer(str(words), lowercase=True)
    except Exception as error:  # the library raises plain exceptions
        raise unreadable(words, error, "a BERT vocabulary") from None
    tokenizer.enable_truncation(spec.length)
    tokenizer.enable_padding(length=spec.length)
    return tokenizer


def read_leaf_reddit(spec: LeafReddit, path: Path, scratch: Path, _progress: Progress) -> Content:
    """Pieces of comments and, for each of their words, the next one.

    `held_out` marks samples of the users' test files; those for validation are not used. Ids follow
    the words' frequency in the training text, after :data:`MARKS`. LEAF numbers marks like words,
    and one too low, so that one of them coincides with its unknown word.

    Raises:
        UserError: if the folder or a file is not in LEAF's format.
    """
    pieces = {
        part: [(user, x, y) for user, own in users for x, y in own]
        for part, users in leaf.parts(path, scratch, _pieces).items()
    }
    if not pieces["train"]:
        raise refusal(path, "train: no samples", "train")
    counts = Counter(word for _, x, _ in pieces["train"] for word in x if word not in MARKS)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: spec.words - len(MARKS)]
    vocabulary = {word: number for number, word in enumerate((*MARKS, *ranked))}
    users = {user: at for at, user in enumerate(sorted({user for user, _, _ in pieces["train"]}))}
    known = [
        (users[user], x, y, part == "test")
        for part in ("train", "test")
        for user, x, y in pieces[part]
        if user in users
    ]
    if len({len(words) for _, x, y, _ in known for words in (x, y)}) != 1:
        raise refusal(path, "expected pieces of one length", code="damaged")

    def numbers(words: list[str]) -> list[int]:
        return [vocabulary.get(word, UNKNOWN) for word in words]

    return Content(
        train=Split(
            np.array([numbers(x) for _, x, _, _ in known], np.int32),
            np.array([numbers(y) for _, _, y, _ in known], np.int64),
            np.array([user for user, _, _, _ in known], np.int64),
            np.array([test for _, _, _, test in known], np.bool_),
        ),
        class_names=[*vocabulary, *(f"<{at}>" for at in range(len(vocabulary), spec.words))],
        notes={"groups": len(users)},
    )


def _pieces(comments: Any, targets: Any) -> list[tuple[list[str], list[str]]]:
    """(words, next words) of all pieces of a user's comments."""
    return [
        (list(x), list(y))
        for comment, target in zip(comments, targets, strict=True)
        for x, y in zip(comment, target["target_tokens"], strict=True)
    ]
