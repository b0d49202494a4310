"""A log says the same in each form that it may have; what a form leaves open is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedrepro.papers.aaggff.loss_log import read_log
from support.refusals import Fault, refused

LOSSES = np.random.default_rng(0).uniform(0.1, 2, (6, 4))
WIDE = pd.DataFrame(LOSSES)
LONG = pd.DataFrame(
    [(t + 1, c, LOSSES[t, c], "") for t in range(6) for c in range(4)],
    columns=["round", "client", "loss", "note"],
)
REVERSED = WIDE[[3, 2, 1, 0]]
Write = Callable[[Path], Any]


def csv(table: pd.DataFrame, **options: Any) -> Write:
    return lambda path: table.to_csv(path, **({"index": False} | options))


def npy(values: Any) -> Write:
    return lambda path: np.save(path, values)


def text(content: str) -> Write:
    return lambda path: path.write_text(content, encoding="utf-8")


SAME: dict[str, Write] = {
    "ids.csv": csv(WIDE),
    "words.csv": csv(WIDE, header=list("abcd")),
    "numbered from 1.csv": csv(WIDE, header=["w1", "w2", "w3", "w4"]),
    "other order.csv": csv(REVERSED),
    "other order, in words.csv": csv(REVERSED.add_prefix("client-")),
    "commas at ends.csv": text(
        "0,1,2,3\n" + WIDE.to_csv(None, index=False, header=False).replace("\n", ",\n")
    ),
    "comment.csv": lambda path: np.savetxt(path, LOSSES, delimiter=",", header="0,1,2,3"),
    "ids.parquet": WIDE.rename(columns=str).to_parquet,
    "sorted.parquet": WIDE.set_index(pd.Index([9, 8, 7, 6, 5, 4])).rename(columns=str).to_parquet,
    "array.npy": npy(LOSSES),
    "long.csv": csv(LONG.sample(frac=1, random_state=1)),
    "capitals.csv": csv(LONG.rename(columns=lambda name: f" {name.title()}")),
    "long.parquet": LONG.to_parquet,
    "indexed.parquet": LONG.set_index(["round", "client"]).to_parquet,
    "named.npy": npy(LONG[["round", "client", "loss"]].to_records(index=False)),
}
REFUSED: dict[str, tuple[Write, Fault]] = {
    "headless.csv": (csv(WIDE, header=False), {"key": "columns", "value": str(LOSSES[0, 0])}),
    "headless whole.csv": (text("1,2,4\n0,1,2\n"), {"key": "columns", "value": "1"}),
    "signed.csv": (text("0,-1\n1,2\n"), {"key": "columns", "value": "0"}),
    "index.csv": (csv(WIDE, index=True), {"key": "columns", "value": "Unnamed: 0"}),
    "index and a word.csv": (text(",c1\n0,3\n1,4\n"), {"key": "columns", "value": "Unnamed: 0"}),
    "round.csv": (csv(WIDE, index=True, index_label="Round"), {"value": "Round"}),
    "round.parquet": (
        WIDE.rename(columns=str).rename_axis("round").to_parquet,
        {"value": "round"},
    ),
    "from one.csv": (csv(WIDE, header=["1", "2", "3", "4"]), {"value": "1"}),
    "one missing.csv": (csv(WIDE[[0, 1, 3]]), {"value": "0"}),
    "twice.csv": (csv(WIDE, header=["0", "0", "1", "2"]), {"value": "0"}),
    "no loss.csv": (csv(LONG[["round", "client"]]), {"value": "round"}),
    "two losses.csv": (csv(LONG.assign(Loss=1)), {"key": "columns"}),
    "longer rows.csv": (text("a,b\n0,1,2\n1,2,3\n"), {"code": "unreadable"}),
    "flat.npy": (npy(LOSSES[0]), {"code": "unreadable"}),
    "cube.npy": (npy(LOSSES[None]), {"code": "unreadable"}),
    "number.npy": (npy(np.float64(1)), {"code": "unreadable"}),
    "complex.npy": (npy(LOSSES + 1j), {"code": "unreadable"}),
    "mask.npy": (npy(LOSSES > 1), {"code": "unreadable"}),
    "times.npy": (npy(LOSSES.astype("m8[s]")), {"code": "unreadable"}),
}


@pytest.mark.parametrize("name", SAME)
def test_a_log_says_the_same_in_each_form(tmp_path: Path, name: str) -> None:
    SAME[name](tmp_path / name)
    log = read_log(tmp_path / name)
    assert log.clients == 4 and len(log.rounds) == 6
    for (cohort, losses), expected in zip(log.rounds, LOSSES, strict=True):
        assert cohort.tolist() == [0, 1, 2, 3] and losses == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_left_open_is_refused(tmp_path: Path, name: str) -> None:
    write, fault = REFUSED[name]
    write(tmp_path / name)
    with refused(file=name, **fault):
        read_log(tmp_path / name)


def test_sizes_and_participants_are_read_as_losses_are(tmp_path: Path) -> None:
    def read(sizes: Write, participants: Write, suffix: str = "csv") -> Any:
        paths = [tmp_path / f"{name}.{suffix}" for name in ("sizes", "who")]
        for write, path in zip((sizes, participants), paths, strict=True):
            write(path)
        np.save(tmp_path / "log.npy", LOSSES)
        log = read_log(tmp_path / "log.npy", sizes=paths[0], participants=paths[1])
        return log.sizes.tolist(), [cohort.tolist() for cohort, _ in log.rounds]

    one_each = text("x\n" + "2\n" * 6)
    assert read(npy(np.array([1, 2, 3, 4])), npy(np.full(6, 2)), "npy")[1] == [[2]] * 6
    for sizes in ("n\n1\n2\n3\n4\n", "0,1,2,3\n1,2,3,4\n", "3,2,1,0\n4,3,2,1\n", "0\n1\n2\n3\n4\n"):
        assert read(text(sizes), one_each) == ([1, 2, 3, 4], [[2]] * 6)
    for sizes, fault in (
        ("1\n2\n3\n4\n", {"key": "columns", "value": "1"}),  # without a header
        ("5\n1\n2\n3\n4\n", {"key": "columns", "value": "5"}),
        (",n\n0,1\n1,2\n", {"key": "columns", "value": "Unnamed: 0"}),
        ("a,b\n1,2\n3,4\n", {"key": "sizes", "value": 4}),  # in no order
    ):
        with refused(file="sizes.csv", **fault):
            read(text(sizes), one_each)
    for who, fault in (
        ("2\n" * 6, {"key": "columns", "value": "2"}),
        ("round,x\n" + "1,2\n" * 6, {"key": "columns", "value": "round"}),
        ("x\n" + "True\n" * 6, {"code": "unreadable"}),  # a mask
        ("x,y\n" + "True,\n" * 6, {"code": "unreadable"}),
        (LONG.to_csv(index=False), {"key": "columns", "value": "round"}),
    ):
        with refused(file="who.csv", **fault):
            read(text("n\n1\n2\n3\n4\n"), text(who))
