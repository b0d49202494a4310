"""Claims for tests: A is said to be more accurate than B in Table 1, or what else is given."""

from typing import Any

from fedrepro.report.papers.claim import Claim


def claim(**keys: Any) -> Claim:
    return Claim.model_validate({
        "system": "s", "name": "x", "says": "x", "source": "x", "basis": "table",
        "tables": ["table_1"], "left": {"method": "A"}, "right": {"method": "B"},
        "expect": "more", **keys,
    })  # fmt: skip
