"""Which numbers a run's page puts at its top, and in which words."""

import html
from pathlib import Path

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.report import site
from fedrepro.report.cells import tables
from fedrepro.report.pages.answers import answers_of, cells_of_runs, headline
from fedrepro.report.papers import published
from fedrepro.run.results import read_run
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
    assert [(each.value, each.summary.up_to) for each in found] == [(50.0, 2), (75.0, None)]
    target = bench.table("own", "table_1", "demo")
    tables.write(bench, target, published.load(bench.root))
    site.write_page(bench, target, published.load(bench.root))
    page = bench.root / "reports/site" / read_run(bench.root, RUN).page
    text = " ".join(html.unescape(page.read_text(encoding="utf-8")).split())
    top = text[text.index('<dl class="figures">') : text.index("</dl>")]
    early = top.index("last evaluated round of the first 2 rounds</dt>")
    whole = top.index("last evaluated round</dt>")
    assert early < top.index("50.00") < whole < top.index("75.00")
