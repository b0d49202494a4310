#!/usr/bin/env python
"""Play the notebooks in docs/ and store what their cells show: `python scripts/notebooks.py`."""

import ast
import io
import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

SHOWN = {"image/svg+xml": "_repr_svg_", "text/html": "_repr_html_", "text/plain": "__repr__"}
DOCS = Path(__file__).resolve().parent.parent / "docs"


def play(
    path: Path, space: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Run a notebook's cells in its folder; each code cell with what it shows.

    Args:
        space: gets the notebook's variables.
    """
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    with chdir(path.parent):
        for number, cell in enumerate(each for each in cells if each["cell_type"] == "code"):
            yield cell, _shown("".join(cell["source"]), path.name, number + 1, space)


def _shown(code: str, name: str, number: int, space: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs of a cell: what it prints and the value of its last expression."""
    body, last, printed = ast.parse(code).body, None, io.StringIO()
    if body and isinstance(body[-1], ast.Expr):
        last = ast.Expression(body.pop().value)
    with redirect_stdout(printed):
        exec(compile(ast.Module(body, []), name, "exec"), space)
        value = eval(compile(last, name, "eval"), space) if last else None
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        stream = {"name": "stdout", "output_type": "stream"}
        outputs.append({**stream, "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {
            kind: _anywhere(getattr(value, method)()).splitlines(keepends=True)
            for kind, method in SHOWN.items()
            if hasattr(value, method)
        }
        kind = {"execution_count": number, "metadata": {}, "output_type": "execute_result"}
        outputs.append({"data": data, **kind})
    return outputs


def _anywhere(text: str) -> str:
    """A text without the folders of this machine."""
    text = text.replace(f"{DOCS}/", "")
    return re.sub(rf"{re.escape(tempfile.gettempdir())}/fedrepro-\w+", "/tmp/fedrepro-run", text)


def main() -> None:
    for path in sorted(DOCS.glob("*.ipynb")):
        os.environ["FEDREPRO_METHODS"] = ""
        notebook = json.loads(path.read_text(encoding="utf-8"))
        shown = iter(list(play(path, {})))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"] = next(shown)[1]
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # as on stderr, which is not stored
    main()
