"""Texts for people: numbers with the same digits everywhere, and texts from outside made clean.

Numbers stand so on pages, in downloads and on a terminal; a server's answer or a log is made clean.
"""

import math
import re
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from fedrepro.support.packaged import PACKAGE

# All of ASCII's and Latin-1's, but for a line's end and a tab: a terminal obeys the others.
CONTROL = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
}
# `process 12 on node7`, as fedrepro.support.locks calls a holder.
HOLDER = re.compile(r"\b(process \d+) on [^\s,;:)]+")
ABSOLUTE = re.compile(r"(?<![\w.:/<])/[^\s'\"`,;:)]+")


def sentence_case(text: str) -> str:
    """Text that begins with a capital; the rest stays, such as AUROC or NaN."""
    return text[:1].upper() + text[1:]


def decimals_for(values: Iterable[float | None]) -> int:
    """The decimals of numbers that are shown together: two, or more if all are below 0.1.

    The largest then has three digits; what rounding errors leave of 0 has two decimals.

    Examples:
        >>> from fedrepro.support.printing import decimals_for
        >>> decimals_for([81.5, 0.001]), decimals_for([0.00125, -0.0003])
        (2, 5)
    """
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    return 2 - math.floor(math.log10(largest)) if 1e-9 < largest < 0.1 else 2


def counted(number: int, what: str) -> str:
    """Such as ``1 seed`` and ``5 seeds``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    r"""Text with control characters written out, such as \x1b."""
    return text.translate(CONTROL)


def redact(text: str, root: Path) -> str:
    """Text for a page: printable, without absolute paths and names of machines.

    Args:
        root: paths in it are written as relative to it.
    """
    for folder in (root.absolute(), PACKAGE.parent):
        text = text.replace(f"{folder}/", "./")
    text = HOLDER.sub(r"\1 on a machine", ABSOLUTE.sub("…", printable(text)))
    return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "a machine", text)


MINUS = "\N{MINUS SIGN}"
THIN = "\N{NARROW NO-BREAK SPACE}"
MISSING = "–"


def fixed(value: float | None, decimals: int) -> str:
    """A value with its decimals, without a sign if it rounds to 0; or a dash."""
    return MISSING if value is None else f"{value:z.{decimals}f}"


def with_spread(mean: float, half_width: float | None, decimals: int, sign: str = "±") -> str:
    """A mean, and the half-width of its 95 % interval if it has one."""
    spread = "" if half_width is None else f" {sign} {fixed(half_width, decimals)}"
    return fixed(mean, decimals) + spread


def with_interval(
    lead: float, interval: tuple[float, float, float] | None, form: Callable[[float], str]
) -> str:
    """A lead, and the ends of its interval if it has one, such as ``+1.20 [+0.40, +2.00]``."""
    if interval is None:
        return form(lead)
    low, mean, high = map(form, interval)
    return f"{mean} [{low}, {high}]"
