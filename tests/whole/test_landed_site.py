"""Every number of the site of committed results, computed again from Parquet files with pandas."""

import csv
import html
import json
import math
import re
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from fedrepro.config.metrics import Least, Reached
from fedrepro.config.workbench import Workbench
from fedrepro.report.pages.row_figures import panels_of
from fedrepro.run.landed_runs import folder_of
from support.landed import (
    READ_ONLY,
    by_method,
    cells_in,
    digits,
    half_width,
    max_of,
    numbers_of,
    parts,
    same,
    shows,
    together,
    words,
)
from support.places import ROOT


def test_tables_and_their_downloads_show_what_the_parquet_files_say(
    made: tuple[Path, Workbench],
) -> None:
    site, bench = made
    seen: Counter[str] = Counter()
    for target in bench.tables("compact").values():
        page = site / target.system / f"{target.item}.html"
        shown = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
        markup = page.read_text(encoding="utf-8")
        matrix = {name: words(each) for name, each in parts(markup, "td", id='cell-[^"]*').items()}
        rows = {name: words(each) for name, each in parts(markup, "tr", id='row-[^"]*').items()}
        lines = list(csv.DictReader(page.with_suffix(".csv").read_text("utf-8").splitlines()))
        latex = page.with_suffix(".tex").read_text(encoding="utf-8")
        wide = len(target.table.columns)
        for place, (cell, told) in enumerate(zip(target.cells, shown["cells"], strict=True)):
            metric = target.table.metric_of(cell.row, cell.column)
            ours = told["paper"]
            higher_is_better = metric.quantity.higher_is_better
            computed = by_method(target, cell)
            for run in ours["runs"]:
                own = computed.get(run["method"], {})
                if run["value"] is not None or not run["why"]:
                    at = (page, cell.row.label, cell.column.label, run["method"], run["seed"])
                    assert same(run["value"], own.get(run["seed"])), at
                    seen["runs"] += run["value"] is not None
            kept = {
                run["seed"]: run["value"]
                for run in ours["runs"]
                if run["method"] == ours["chosen"] and run["value"] is not None
            }
            line, identifier = lines[place], "-".join(str(n + 1) for n in divmod(place, wide))
            text, row = matrix[f"cell-{identifier}"], rows[f"row-{identifier}"]
            if not kept:
                assert ours["mean"] is None and line["ours"] == ""
                continue
            values = computed[ours["chosen"]]
            means = {
                method: math.fsum(found.values()) / len(found) for method, found in computed.items()
            }
            best = (max if higher_is_better else min)(means.values())
            if isinstance(metric, Least | Reached):
                mean, half = together(target, cell, ours["chosen"]), None
            else:
                mean, half = means[ours["chosen"]], half_width([*values.values()])
                assert same(mean, best), (page, cell.row.label, cell.column.label)
            assert set(values) == set(kept)
            assert same(ours["mean"], mean), (page, cell.row.label, cell.column.label)
            assert same(ours["half_width"], half) and ours["n"] == len(values)
            assert same(float(line["ours"]), mean)
            assert (
                line["half_width_95"] == ""
                if half is None
                else same(float(line["half_width_95"]), half)
            )
            alike = [
                other["paper"]["mean"]
                for their, other in zip(target.cells, shown["cells"], strict=True)
                if their.row == cell.row
                and target.table.metric_of(their.row, their.column) == metric
            ]
            decimals = told["printed"]["decimals"] if told["printed"] else digits(alike)
            for shown_in in (text, row):
                found = shown_in.split()
                assert any(shows(word, mean, decimals) for word in found), (page, identifier, text)
            assert f"{ours['mean']:.{decimals}f}" in latex
            if half is not None:
                width = row.partition("± ")[2].partition(" ")[0]
                assert shows(width, half, decimals), (page, identifier, row)
            printed = told["printed"] and told["printed"]["mean"]
            if told["difference"] is not None:
                assert same(told["difference"], mean - printed)
                signed = [word for word in row.split() if word[0] in "+\N{MINUS SIGN}"]
                assert any(shows(word, mean - printed, decimals) for word in signed)
            seen["read" if type(metric).__name__ in READ_ONLY else "computed"] += 1
            seen[type(metric).__name__] += 1
    # As many at least as when this was written: 618 cells of 2,517 runs; 24 cells are read.
    assert seen["computed"] >= 618 and seen["runs"] >= 2517, seen
    assert seen["read"] == sum(seen[name] for name in READ_ONLY) <= 60, seen


def test_curves_of_tables_end_at_the_numbers_of_their_cells(made: tuple[Path, Workbench]) -> None:
    """The test above recomputes these numbers."""
    site, bench = made
    seen: Counter[str] = Counter()
    for target in bench.tables("compact").values():
        page = site / target.system / f"{target.item}.html"
        told = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
        named = {told["columns"][at]["label"]: pair for pair in panels_of(target) for at, _ in pair}
        wide = len(target.table.columns)
        for start, text in parts(page.read_text("utf-8"), "section", id=r"row-\d+").items():
            first = (int(start.removeprefix("row-")) - 1) * wide
            for chart in map(html.unescape, re.findall(r'aria-label="(Test [^"]*)"', text)):
                title = max((each for each in named if f", {each}, setting" in chart), key=len)
                _, *ends = re.split(r"(?:, setting \S+?: |; )(?=[^;]* ends at)", chart)
                pairs = (each.split(" ends at ") for each in ends)
                ended = {name: end.split()[0].rstrip(".") for name, end in pairs}
                decimals = digits([float(end) for end in ended.values()])
                for column, name in named[title]:
                    cell = target.cells[first + column]
                    metric = target.table.metric_of(cell.row, cell.column)
                    ours = told["cells"][first + column]["paper"]["mean"]
                    if metric.quantity.of_a_run or ours is None:
                        continue
                    # A number chosen after the last round.
                    marked = f"{name}, {metric.quantity.mixture}"
                    shown = ended[marked if marked in ended else name]
                    assert shows(shown, ours, decimals), (page, start, title, name)
                    seen["means" if target.table.summary.rounds > 1 else "single"] += 1
    assert seen["means"] >= 100 and seen["single"] >= 20, seen


def test_a_mean_over_some_of_the_seeds_says_so(made: tuple[Path, Workbench]) -> None:
    """As over those that reached a target."""
    site, bench = made
    seen = 0
    for target in bench.tables("compact").values():
        page = site / target.system / f"{target.item}.html"
        text = page.read_text(encoding="utf-8")
        wide = len(target.table.columns)
        for at, cell in enumerate(
            json.loads(page.with_suffix(".json").read_text("utf-8"))["cells"]
        ):
            ours = cell["paper"]
            runs = [run for run in ours["runs"] if run["method"] == ours["chosen"]]
            place = f'id="cell-{at // wide + 1}-{at % wide + 1}"'
            shown = re.search(
                r">(\d+) of\s+(\d+) seeds?<", text.partition(place)[2].partition("</td>")[0]
            )
            if (
                any(run["state"] != "not run" and run["value"] is None for run in runs)
                and ours["n"]
            ):
                assert shown, (page, place)
                assert (int(shown[1]), int(shown[2])) == (ours["n"], len(runs))
                seen += 1
            else:
                assert not shown or ours["trouble"] or ours["n"] < len(runs), (page, place)
    assert seen >= 10


def test_pages_of_runs_show_the_number_of_each_cell_that_uses_them(
    made: tuple[Path, Workbench],
) -> None:
    site, bench = made
    cells = {
        (scale == "demo", f"{target.system}/{target.item}.html#row-{row + 1}-{column + 1}"): (
            target,
            cell,
        )
        for scale in ("compact", "demo")
        for target in bench.tables(scale).values()
        for place, cell in enumerate(target.cells)
        for row, column in [divmod(place, len(target.table.columns))]
    }
    pages, seen = sorted((site / "reference").glob("*/*/*/seed*.html")), 0
    for page in pages:
        system, setting, method, name = page.relative_to(site / "reference").parts
        seed = int(name.removeprefix("seed").removesuffix(".html"))
        text = page.read_text(encoding="utf-8")
        uses = text.partition('<table class="stack answers">')[2].partition("</table>")[0]
        for each in uses.partition("<tbody>")[2].split("<tr>")[1:]:
            shown = re.search(r'data-label="This run">([^<]*)', each)
            assert shown, page
            number = shown[1].split()[0]
            for address in re.findall(r'href="(?:\.\./)*([^"]*#row-\d+-\d+)"', each):
                target, cell = cells['"tag demo"' in each, html.unescape(address)]
                assert cell.setting == f"{system}/{setting}" and method in cell.methods, (
                    page,
                    address,
                    cell.setting,
                    cell.methods,
                )
                value = numbers_of(target, cell, method).get(seed)
                assert number == "no" if value is None else shows(number, value), (
                    page,
                    address,
                    number,
                    value,
                )
                seen += value is not None
    assert len(pages) >= 140 and seen >= 250, (len(pages), seen)


def test_pages_of_pairs_show_paired_differences(made: tuple[Path, Workbench]) -> None:
    site, bench = made
    targets = {f"{each.system}/{each.item}.html": each for each in bench.tables("compact").values()}
    seen = 0
    for page in sorted((site / "compare").glob("*/*.html")):
        for row in parts(page.read_text(encoding="utf-8"), "tr").values():
            cells = cells_in(row)
            if cells[:1] == ["Data and setting"]:
                name, other = cells[1:3]
                continue
            link = html.unescape(row.partition('href="')[2].partition('"')[0])
            address, _, place = link.replace("../", "").partition("#row-")
            target = targets[address]
            wide = len(target.table.columns)
            here = target.cells[(int(place) - 1) * wide : int(place) * wide]
            ours, theirs = (
                max_of(target, next(cell for cell in here if cell.column.label == label))
                for label in (name, other)
            )
            assert {bench.datasets[bench.setting(here[0].setting).dataset].title} == {
                cells[0].removesuffix(f" {here[0].row.label}").removesuffix(here[0].row.label)
            }
            shared = [int(seed) for seed in sorted({*ours} & {*theirs})]
            assert cells[5] == str(len(shared)), (page, cells)
            differences = [ours[seed] - theirs[seed] for seed in shared]
            half = half_width(differences)
            means = [
                math.fsum(some) / len(shared)
                for some in (
                    [ours[seed] for seed in shared],
                    [theirs[seed] for seed in shared],
                    differences,
                )
            ]
            assert all(map(shows, cells[1:4], means)), (page, cells, means)
            assert cells[4] == "–" if half is None else shows(cells[4], half), (page, cells)
            seen += 1
    assert seen >= 2000, seen


def test_no_page_names_the_machine(made: tuple[Path, Workbench]) -> None:
    site, _ = made
    secret = re.compile("|".join(map(re.escape, {str(ROOT), str(Path.home()), str(site)})))
    for page in site.rglob("*"):
        if page.suffix in (".html", ".json", ".csv", ".tex", ".yaml", ".js"):
            assert not secret.search(page.read_text(encoding="utf-8")), page


def test_no_page_has_an_empty_reason(made: tuple[Path, Workbench]) -> None:
    """A landed run without a page is not missing, so there is nothing to say of it."""
    site, _ = made
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'title=""' not in text and not re.search(r">\s*\(\s*\)\s*<", text), page


def test_no_sentence_begins_where_another_ends(made: tuple[Path, Workbench]) -> None:
    """Jinja drops the line break after a block: ``in these settings.The paper tunes``."""
    site, _ = made
    for page in site.rglob("*.html"):
        markup = re.sub(r"<(code|svg|pre)\b.*?</\1>", "", page.read_text("utf-8"), flags=re.DOTALL)
        for paragraph in re.findall(r"<p\b[^>]*>(.*?)</p>", markup, re.DOTALL):
            text = re.sub(r"<[^>]*>", "", paragraph)
            assert not re.search(r"[a-z)%][.;:?][A-Z][a-z]", text), (page.name, text)


def test_pages_say_what_they_are_of_and_lead_on(made: tuple[Path, Workbench]) -> None:
    site, _ = made
    for page in site.rglob("*.html"):
        assert "Licence: MIT." in page.read_text(encoding="utf-8"), page
    methods = (site / "methods/index.html").read_text(encoding="utf-8")
    assert {path.name for path in (site / "methods").glob("*.html")} == {
        "index.html", *re.findall(r'href="(\w+\.html)"', methods)
    }  # fmt: skip
    said = (site / "discrepancies.html").read_text(encoding="utf-8")
    first = said.partition("By measured effect")[2].partition("</details>")[0]
    found = re.findall(r"([^>\s]+) points</span>", first)
    effects = [abs(float(text.replace("\N{MINUS SIGN}", "-"))) for text in found]
    assert len(effects) >= 8 and effects == sorted(effects, reverse=True)
    start = (site / "index.html").read_text(encoding="utf-8")
    assert 'class="tag demo"' not in start and start.count('<details class="coverage">') == 5


def test_pages_of_methods_begin_with_what_differs(made: tuple[Path, Workbench]) -> None:
    site, _ = made
    for name, text in (
        ("fedgo", "It differs from FedDF in the weights of teachers"),
        ("feddisco", "The more a client's classes are out of balance"),
        ("dafkd", "It differs from FedDF in the weights of teachers"),
        ("krum", "Of a cohort of m clients up to f may be attackers"),
    ):
        markup = (site / f"methods/{name}.html").read_text(encoding="utf-8")
        before_the_code = words(markup.partition("<section")[0])
        assert text in before_the_code and "The paper is" not in before_the_code, name


def test_tables_link_to_their_other_scales(made: tuple[Path, Workbench]) -> None:
    """A compact table and a printed one that a claim connects lead to each other."""
    site, bench = made
    links: dict[str, set[str]] = {}
    for target in bench.tables("compact").values():
        page = site / target.system / f"{target.item}.html"
        navs = parts(page.read_text(encoding="utf-8"), "nav", **{"class": "scales"})
        assert len(navs) <= 1, page
        for nav in navs.values():
            assert nav.count('aria-current="page"') == 1, page
            found = re.findall(r'href="([^"]*)"', nav)
            assert found and len(found) == len(set(found)), page
            links[f"{target.system}/{target.item}.html"] = {
                f"{target.system}/{each}" for each in found
            }
    compact = {page for page in links if "/compact_" in page}
    assert len(compact) >= 20
    for page in compact:
        for other in links[page]:
            assert page in links[other], (page, other)


def test_where_local_training_is_a_column_the_page_says_why_it_can_lead(
    made: tuple[Path, Workbench],
) -> None:
    site, bench = made
    with_it = {"league.html"}
    for target in bench.tables("compact").values():
        if any(cell.methods == ("local",) for cell in target.cells):
            with_it.add(f"{target.system}/{target.item}.html")
    assert len(with_it) == 5
    pages = [site / "league.html", *site.glob("*/*.html")]
    said = "Local training gives each client a model of its own and shares nothing."
    for page in pages:
        there = said in " ".join(page.read_text(encoding="utf-8").split())
        assert there == (page.relative_to(site).as_posix() in with_it), page


def test_the_start_page_draws_each_claim_that_has_an_interval(
    made: tuple[Path, Workbench],
) -> None:
    site, _ = made
    start = (site / "index.html").read_text(encoding="utf-8")
    claims = (site / "claims.html").read_text(encoding="utf-8")
    drawn = re.findall(r"<title>(.*?)</title>", start.partition("<body>")[2])
    rows = [words(row) for row in parts(claims, "tr", id="[a-z0-9-]*").values()]
    with_interval = [
        row for row in rows if re.search(r"Mean lead \S+ \[[^\]]*\](?: \w+)* ?, \d+ seeds?\.", row)
    ]
    assert len(drawn) == len(with_interval) >= 25
    links = re.findall(r'<a href="claims\.html#([^"]+)" aria-label="([^"]*)"><title>', start)
    assert [title for _, title in links] == drawn
    assert all(f'id="{anchor}"' in claims for anchor, _ in links)
    assert sum("Most against it: " in title for title in drawn) >= 10
    for title in map(html.unescape, drawn):
        title, _, rival = title.partition(" Most against it: ")
        assert not rival or re.fullmatch(r".+, \S+ \[[^\]]*\]\.", rival), rival
        found = re.fullmatch(r"(.*[.?]) [^.]*, (\S+ \[.*\](?: \w+)*)\.", title)
        assert found, title
        says, lead = found[1], found[2].replace("-", "\N{MINUS SIGN}")
        assert any(row.startswith(says) and f"Mean lead {lead}" in row for row in rows), title


SECONDS = {"s": 1, "min": 60, "h": 3600}
BYTES = {"MB": 1e6, "GB": 1e9}


def test_costs_are_sums_over_committed_results(made: tuple[Path, Workbench]) -> None:
    site, bench = made
    by_table, by_method = parts((site / "cost.html").read_text(encoding="utf-8"), "table").values()
    rows = {cells[0]: cells[1:] for cells in map(cells_in, parts(by_table, "tr").values())}
    small = [
        {"setting": f"{path.parts[-4]}/{path.parts[-2]}", **runs, **json.loads(runs["timing"])}
        for path in sorted((ROOT / "reports/papers").glob("*/compact/*/runs.parquet"))
        if "@validation" not in path.parts[-2]  # a search's, which no table shows
        for runs in pd.read_parquet(path).to_dict("records")
    ]
    single = [
        {"setting": f"{path.parts[-6]}/{path.parts[-4]}", "method": path.parts[-3]}
        | {"device": json.loads((path.parent / "manifest.json").read_bytes())["device"]}
        | json.loads(path.read_bytes())
        for path in sorted((ROOT / "reports/papers").glob("*/reference/*/*/*/timing.json"))
    ]
    check_cost(
        rows["Small runs of tables that are in the repository, each once"], pd.DataFrame(small)
    )
    check_cost(rows["Reference results"], pd.DataFrame(single))
    of_small = pd.DataFrame(small).set_index(["setting", "method", "seed"])
    seen = 0
    for target in bench.tables("compact").values():
        wanted = [(run.setting, run.method, run.seed) for run in target.runs]
        address = f"{target.system}/{target.item}.html"
        for row in parts(by_table, "tr").values():
            if f'href="{address}"' in row:
                cells = cells_in(row)[1:]
                there = of_small[of_small.index.isin(wanted)]
                assert cells[1] == f"{len(there)} of {len(wanted)}", address
                check_cost([cells[0], str(len(there)), *cells[2:]], there)
                seen += 1
    assert seen >= 25
    shown = [cells_in(row) for row in parts(by_method, "tr").values()][1:]
    groups = pd.DataFrame(single).groupby(["setting", "method"])
    assert len(shown) == len(groups)
    for (setting, method), those in groups:
        (cells,) = (each for each in shown if each[0] == f"{setting} {method} reference")
        assert {cells[2]} == {*those.device}, cells
        assert shows(cells[5], those.rounds_per_second.mean()), cells
        gpu = cells[4] if cells[2] == "cuda" else "–"
        check_cost(["paper", str(len(those)), cells[3], gpu, *cells[4:5], cells[6]], those)


def check_cost(cells: list[str], those: pd.DataFrame) -> None:
    """Whether number, times and memory are those of these runs."""
    _, runs, cpu, gpu, wall, memory = cells
    assert runs == str(len(those))
    on_gpu = those[those.device == "cuda"].wall_seconds if "device" in those else those.iloc[:0]
    assert (gpu == "–") == (len(on_gpu) == 0)
    for text, units, value in (
        (cpu, SECONDS, those.cpu_seconds.sum()),
        *([(gpu, SECONDS, on_gpu.sum())] if len(on_gpu) else []),
        (wall, SECONDS, those.wall_seconds.sum()),
        (memory, BYTES, those.peak_memory_bytes.max()),
    ):
        number, unit = text.split()
        assert float(number) * units[unit] == pytest.approx(value, rel=0.006), (cells, value)


def test_runs_without_pages_are_listed_with_what_made_them(made: tuple[Path, Workbench]) -> None:
    site, bench = made
    seen = 0
    for target in bench.tables("compact").values():
        wanted = {(run.setting, run.method, str(run.seed)) for run in target.runs}
        landed = {}
        for setting in {run.setting for run in target.runs}:
            system, _, name = setting.partition("/")
            path = ROOT / f"reports/papers/{system}/compact/{name}/runs.parquet"
            for row in pd.read_parquet(path).to_dict("records") if path.exists() else []:
                landed[setting, row["method"], str(row["seed"])] = json.loads(row["manifest"])
        path = site / target.system / f"{target.item}-runs.csv"
        lines = pd.read_csv(path, dtype=str).to_dict("records") if path.exists() else []
        listed = {(line["setting"], line["method"], line["seed"]): line for line in lines}
        # An input such as a generator is no cell's run.
        assert len(listed) == len(lines) and listed.keys() <= landed.keys() & wanted
        page = (site / target.system / f"{target.item}.html").read_text(encoding="utf-8")
        assert (f'href="{target.item}-runs.csv"' in page) == bool(lines)
        for key, line in listed.items():
            manifest = landed[key]
            assert line["commit"] == manifest["git"]["fedrepro"]["commit"]
            assert line["dirty"] == str(manifest["git"]["fedrepro"]["dirty"])
            assert line["code"] == manifest["code"]
            assert line["data_sha256"] == manifest["data"]["content_sha256"]
            assert line["processor"] == manifest["hardware"]["processor"]
            assert line["numerics"].split("; ") == [
                f"{part} {name}" for part, name in manifest["numerics"].items()
            ]
        seen += len(listed)
    assert seen > 2000


def test_the_files_of_figures_show_what_the_parquet_files_say(made: tuple[Path, Workbench]) -> None:
    site, bench = made
    files = {str(path.relative_to(site)) for path in site.rglob("*.csv")}
    tables = {
        f"{system}/{item}{ending}.csv"
        for system, item in bench.tables("compact")
        for ending in ("", "-runs")
    }
    # The league's file is checked where the league is; other figures have no committed runs.
    assert files - tables == {"league.csv", "superfed/figure_2_5.csv"}
    lines = pd.read_csv(site / "superfed/figure_2_5.csv", dtype=str).to_dict("records")
    assert [line["Method"] for line in lines] == ["APFL", "SuPerFed-MM", "SuPerFed-LM"]
    for line, method in zip(lines, ("apfl", "superfed_mm", "superfed_lm"), strict=True):
        folder = ROOT / "reports/papers/superfed/reference" / line["Setting"] / method
        curves = []
        for path in sorted(folder.glob("seed*/mixtures.parquet")):
            scores = pd.read_parquet(path)
            correct = (scores.accuracy * scores.test_samples).groupby(scores.weight).sum()
            curves.append(100 * correct / scores.test_samples.groupby(scores.weight).sum())
        mean = pd.concat(curves, axis=1).mean(axis=1)
        assert len(curves) == 3 and float(line["At weight"]) == mean.idxmax()
        for column, value in (("At 0", mean.loc[0]), ("Best", mean.max()), ("At 1", mean.loc[1])):
            assert shows(line[column], value), (line, column)


def test_compact_tables_offer_the_files_of_their_runs(made: tuple[Path, Workbench]) -> None:
    site, bench = made
    offered = set()
    for target in bench.tables("compact").values():
        page = site / target.system / f"{target.item}.html"
        linked = set(re.findall(r'href="\.\./([^"]*\.parquet)"', page.read_text("utf-8")))
        told = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["cells"]
        for cell, each in zip(target.cells, told, strict=True):
            landed = ROOT / folder_of(cell.setting) / "runs.parquet"
            if each["paper"]["n"] and landed.exists():  # those of heart are of scale paper
                place = f"{target.system}/compact/{landed.parent.name}/runs.parquet"
                assert place in linked
                assert (site / place).read_bytes() == landed.read_bytes()
                offered.add(place)
    assert len(offered) > 40
