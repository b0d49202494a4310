"""The numbers in a text, for tests of what a sentence says and not of how it says it."""

import re

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?")


def numbers_in(text: object) -> list[float]:
    """The numbers in a text, in their order; those in names (``seed1``) are left out."""
    return [float(number.replace(",", "")) for number in NUMBER.findall(str(text))]
