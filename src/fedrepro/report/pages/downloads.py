"""Downloads: tables, figures with their numbers, references.

Tables are CSV and LaTeX (their JSON is that of results/tables), figures SVG and PNG, references
BibTeX.
"""

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from fedrepro.report.cells.cell import Best, ComputedTable
from fedrepro.report.pages.templates import TEMPLATES, environment
from fedrepro.support.packaged import ORIGIN
from fedrepro.support.printing import with_spread

HEADER = (
    "row", "setting", "method", "metric", "unit", "printed", "printed_spread", "printed_as",
    "ours", "half_width_95", "seeds", "difference", "verdict", "limit", "margin", "seeds_to_decide",
    "selected_on_test_data",
    "demo_setting", "demo", "demo_half_width_95", "demo_seeds", "note",
)  # fmt: skip
PLUS_MINUS = r"$\pm$"
# Characters that LaTeX needs escaped.
SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "α": r"$\alpha$", "λ": r"$\lambda$", "μ": r"$\mu$", "ν": r"$\nu$", "±": PLUS_MINUS,
    "−": "$-$", "–": "--", "×": r"$\times$", "β": r"$\beta$", "γ": r"$\gamma$", "ε": r"$\epsilon$",
    "ρ": r"$\rho$", "σ": r"$\sigma$", "τ": r"$\tau$", "∞": r"$\infty$",
    "≤": r"$\le$", "≥": r"$\ge$",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "[": "{[}", "*": "{*}",  # behind the end of a row, it would take them for its own
}  # fmt: skip


def as_csv(table: ComputedTable) -> str:
    """A line for each cell: printed number, ours and verdict; missing ones are empty.

    An apostrophe precedes text that a spreadsheet would read as a formula.
    """
    lines = []
    for cell in table.cells:
        row, printed, ours, demo = table.rows[cell.row], cell.printed, cell.result, cell.demo
        lines.append((
            row.label, ours.setting, table.columns[cell.column].label, *table.measure_of(cell),
            printed and printed.mean, printed and printed.std, printed and printed.text,
            ours.mean, ours.half_width, ours.n, cell.difference,
            cell.verdict and cell.verdict.word, cell.verdict and cell.verdict.limit,
            cell.verdict and cell.verdict.margin, cell.verdict and cell.verdict.needs,
            cell.selection, demo and demo.setting, demo and demo.mean, demo and demo.half_width,
            demo and demo.n, "; ".join(each.note for each in (ours, demo) if each and each.note),
        ))  # fmt: skip
    return rows_as_csv(HEADER, lines)


def _harmless(value: object) -> object:
    """Text in one line, after an apostrophe if a spreadsheet would compute it; else as it is."""
    if not isinstance(value, str):
        return value
    text = _one_line(value)  # `csv` does not quote every line break, behind which a cell begins
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
    return text


def as_latex(
    table: ComputedTable,
    columns: Sequence[int],
    source: str,
    own: Collection[int],
    best: Sequence[Best],
) -> str:
    """A self-contained table: in each cell the printed number, below it ours with its sign.

    Without a printed number in the table, each row is one line.

    Args:
        columns: the columns to show, in this order.
        source: the paper, in words.
        own: the columns of the paper's own methods, which have a star.
        best: for each row, its best numbers, which are bold.
    """
    cells = {(cell.row, cell.column): cell for cell in table.cells}
    rows = [
        (row, [cells[number, column] for column in columns], best[number])
        for number, row in enumerate(table.rows)
    ]
    return in_template(
        "table.tex.j2",
        table=table,
        columns=columns,
        rows=rows,
        printed=any(cell.printed for cell in table.cells),
        own=own,
        source=source,
    )


def in_template(name: str, **content: Any) -> str:
    """A template of LaTeX, filled."""
    template = environment(ORIGIN / TEMPLATES).get_template(name)
    spread = partial(with_spread, sign=PLUS_MINUS)
    return template.render(latex=in_latex, one_line=_one_line, spread=spread, **content) + "\n"


def in_latex(text: str) -> str:
    """Text with LaTeX's special characters escaped, in one line."""
    return "".join(SPECIAL.get(letter, letter) for letter in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def as_bibtex(key: str, entry: Mapping[str, str]) -> str:
    """An entry of reports/papers/references.yaml."""
    kind = "article" if "journal" in entry else "inproceedings" if "booktitle" in entry else "misc"
    fields = {name: value for name, value in entry.items() if name != "arxiv"}
    if "arxiv" in entry:
        fields |= {"eprint": entry["arxiv"], "archiveprefix": "arXiv"}
    lines = [f"  {name} = {{{_in_bibtex(name, str(value))}}}," for name, value in fields.items()]
    return "\n".join((f"@{kind}{{{key},", *lines, "}")) + "\n"


def _in_bibtex(name: str, text: str) -> str:
    text = _one_line(text).replace("{", "").replace("}", "")
    return text if name in ("url", "doi", "eprint") else re.sub(r"([&%#_$])", r"\\\1", text)


def light_colours(style_sheet: str) -> dict[str, str]:
    """The style sheet's colours by variable, for light mode."""
    block = style_sheet[style_sheet.index(":root {") :].partition("}")[0]
    return dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6});", block))


def standalone(svg: str, colours: Mapping[str, str], scale: float = 1.0) -> str:
    """A page's chart as a standalone file with colours, size and background.

    Args:
        scale: factor on its own size.
    """
    coloured = re.sub(r"var\((--[\w-]+)\)", lambda name: colours[name[1]], svg)
    width, height = re.findall(r'viewBox="0 0 (\d+) (\d+)"', svg)[0]
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    head, _, rest = coloured.partition(">")
    head = re.sub(r' style="[^"]*"', "", head)
    shown, tall = round(scale * int(width)), round(scale * int(height))
    return f'{head} width="{shown}" height="{tall}">{ground}{rest}\n'


def has_png() -> bool:
    """Return True if the package that :func:`as_png` needs is installed (the extra ``png``)."""
    return find_spec("vl_convert") is not None


def as_png(svg: str) -> bytes:
    """A standalone chart at twice its size; needs :func:`has_png`."""
    import vl_convert

    return bytes(vl_convert.svg_to_png(svg, scale=2))


def rows_as_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV of a header and rows; what a spreadsheet would read as a formula is text."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([_harmless(value) for value in row] for row in (header, *rows))
    return file.getvalue()
