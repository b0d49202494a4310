"""The markup of charts, which is in the template drawing.svg.j2: a macro for each part."""

import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from fedrepro.report.drawing import style

SOURCE = Path(__file__).with_name("drawing.svg.j2")


@cache
def macros() -> Any:
    """The template, compiled."""
    made = Environment(undefined=StrictUndefined)
    made.filters |= {"px": "{:.1f}".format, "xml": escape}
    in_one_line = re.sub(r"\n\s*", "", SOURCE.read_text(encoding="utf-8"))
    return made.from_string(in_one_line).make_module({"style": style})


def in_svg(part: str, **content: Any) -> str:
    """A part of a chart as SVG."""
    return str(getattr(macros(), part)(**content))
