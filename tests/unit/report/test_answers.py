"""Which numbers a run's page puts at its top, and in which words."""

import html
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedrepro.config.loading import load
from fedrepro.config.metrics import OfRounds, OverClients, RoundsTo
from fedrepro.config.tables import Summary
from fedrepro.config.targets import RunKey
from fedrepro.report import site
from fedrepro.report.cells import tables
from fedrepro.report.pages.answers import CellUse, answers_of, cells_of_runs, headline
from fedrepro.report.papers import published
from fedrepro.run.results import read_run
from fedrepro.support.printing import decimals_for
from support.report_world import copy_inputs, write_run
from support.search_world import settle

RUN = RunKey("own/s", "fedavg", 1)


def test_a_number_of_earlier_rounds_is_a_number_of_its_own(tmp_path: Path) -> None:
    """It must not stand where a table takes the last round, nor the other way round."""
    common = {
        "rows": [{"label": "S", "setting": "s"}],
        "columns": [{"label": "A", "method": "fedavg"}],
    }
    both = {
        "table_1": {"title": "Early", "summary": {"up_to": 2}, **common},
        "table_2": {"title": "Whole", **common},
        "table_3": {"title": "Whole, again", **common},
    }
    copy_inputs(tmp_path)
    bench = load(settle(tmp_path, tables=both, seeds={"demo": [1], "paper": [1]}))
    write_run(bench, RUN, [0.25, 0.5, 0.75])
    uses = cells_of_runs(bench, published.Published(), {RUN})[RUN]
    found = headline(answers_of(read_run(bench.root, RUN), uses))
    assert [(each.value, each.use.summary.up_to) for each in found] == [(50.0, 2), (75.0, None)]
    target = bench.table("own", "table_1", "demo")
    tables.write(bench, target, published.load(bench.root))
    site.write_page(bench, target, published.load(bench.root))
    page = bench.root / "reports/site" / read_run(bench.root, RUN).page
    text = " ".join(html.unescape(page.read_text(encoding="utf-8")).split())
    top = text[text.index('<dl class="figures">') : text.index("</dl>")]
    shown = re.findall(r"<dt>(.*?)</dt>\s*<dd>(?:<[^>]*>)*(50\.00|75\.00)", top)
    assert [(re.findall(r"\d+", name), value) for name, value in shown] == [
        (["2"], "50.00"),  # of the first two rounds
        ([], "75.00"),
    ]


def use(place: str, **about: Any) -> CellUse:
    """A cell of table ``t`` that takes the last accuracy of seeds 1 and 2."""
    told = {"table": "T", "page": "own/t.html", "place": place, "address": f"own/t.html#{place}"}
    told |= {"metric": OfRounds(name="accuracy"), "summary": Summary(), "seeds": (1, 2)}
    told |= {"row": None, "column": None, "setting": "own/s", "methods": ("fedavg",)}
    told |= {"demo": False, "printed": None, "result": lambda: f"mean of {place}"}
    return CellUse(**(told | about))


def record_of(seed: int = 2, **about: Any) -> Any:
    rounds = {"round": [1, 2, 3], "test_accuracy": [0.5, 0.25, 0.75], "test_loss": [3.0, 2.0, 1.0]}
    told = {"run": RunKey("own/s", "fedavg", seed), "manifest": {}, "state": "finished"}
    return SimpleNamespace(**(told | {"rounds": rounds, "clients": {}, "mixtures": {}} | about))


def test_cells_with_a_number_of_their_own_are_listed_one_by_one_and_others_together() -> None:
    """Published settings come first; one of several seeds has the cell's mean beside it."""
    printed: Any = SimpleNamespace(decimals=3, mean=75.0)
    uses = [
        use("demo 1", demo=True), use("demo 2", demo=True), use("several"), use("others"),
        use("printed", seeds=(2,), printed=printed), use("one", seeds=(2,)),
        use("another", seeds=(2,)), use("loss", seeds=(2,), metric=OfRounds(name="loss")),
        use("means", seeds=(2,), summary=Summary(rounds=2)), use("page", page="own/a.html"),
    ]  # fmt: skip
    answers = answers_of(record_of(), uses)
    places = [tuple(place for place, _ in each.places) for each in answers]
    assert places == [
        ("page",), ("several",), ("others",), ("printed",), ("one", "another"), ("loss",),
        ("means",), ("demo 1", "demo 2"),
    ]  # fmt: skip
    assert [each.value for each in answers] == [75, 75, 75, 75, 75, 1, 50, 75]
    wholes = [each.whole for each in answers]
    assert wholes[:3] == [f"mean of {place}" for place in ("page", "several", "others")]
    assert not any(wholes[3:])
    assert [each.decimals for each in answers[2:4]] == [2, 3]
    assert [each.use.demo for each in answers] == [False] * 7 + [True]
    assert [each.unit for each in answers[4:6]] == ["%", ""]
    assert len({each.seed for each in answers}) == 2 and "1, 2" in answers[1].seed
    # Above them each number once, and none that the run does not have.
    assert [each.value for each in headline(answers)] == [75, 1, 50]
    none = answers_of(record_of(rounds={"round": [1]}), uses)
    assert [each.value for each in none] == [None] * 8 and headline(none) == []
    # An empty printed cell has no decimals of its own.
    empty: Any = SimpleNamespace(decimals=0, mean=None)
    small = record_of(rounds={"round": [1], "test_loss": [0.0041]})
    (loss,) = answers_of(small, [use("loss", printed=empty, metric=OfRounds(name="loss"))])
    assert loss.decimals == decimals_for([0.0041]) == 5


def test_a_ratio_is_of_the_run_s_own_seed() -> None:
    """Which takes a second run, so that the cell has it."""
    runs = [SimpleNamespace(seed=seed, value=10.0 * seed) for seed in (1, 2, 3)]
    result = SimpleNamespace(runs=runs, run_of=lambda run: RunKey("own/s", "fedavg", run.seed))
    ratio = RoundsTo(rounds_to=50.0, speed_up=True)
    for seed, value in ((1, 10.0), (3, 30.0), (4, None)):
        (answer,) = answers_of(record_of(seed), [use("r", metric=ratio, result=lambda: result)])
        assert answer.value == value


def test_a_number_at_a_mixture_says_at_which_where_there_are_mixtures() -> None:
    metrics = [
        OverClients(of="accuracy", over_clients="average", mix=mix) for mix in ("fixed", "best")
    ]
    uses = [use(metric.mix, metric=metric) for metric in (*metrics, OfRounds(name="accuracy"))[:2]]
    uses.append(use("rounds"))
    plain = [each.words for each in answers_of(record_of(), uses)]
    assert plain[0] == plain[1] != plain[2]
    record = record_of(manifest={"files": {"mixtures.parquet": "x"}})
    mixed = [each.words for each in answers_of(record, uses)]
    assert len({*mixed}) == 3 and mixed[2] == plain[2]
    assert mixed[0].startswith(plain[0]) and mixed[1].endswith(metrics[1].quantity.mixture)
