"""Numbers as text, with the same digits on pages, in downloads and on a terminal."""

from collections.abc import Callable

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
