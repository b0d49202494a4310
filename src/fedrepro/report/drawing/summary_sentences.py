"""Sentences that summarise a figure, rendered from its numbers."""

from collections import Counter
from collections.abc import Mapping, Sequence

from fedrepro.measures.base import Quantity

Values = Mapping[str, float]


def leaders(places: Sequence[tuple[str, Values]], higher_is_better: bool, unit: str = "") -> str:
    """Which line or bar is best, and how clearly; "" with nothing to compare.

    Args:
        places: the name of each panel or point, and the value of each of its lines or bars.
        higher_is_better: whether more is better.
        unit: of the values, or "".
    """
    ordered = [
        (place, sorted(values.items(), key=lambda item: -item[1] if higher_is_better else item[1]))
        for place, values in places
        if len(values) > 1
    ]
    if not ordered:
        return ""
    if len(ordered) == 1:
        (_, order), *_ = ordered
        (best, high), (last, low) = order[0], order[-1]
        if high == low:
            return f"All {len(order)} have {_with(high, unit)}."
        return f"{best} is best with {_with(high, unit)}, {last} last with {_with(low, unit)}."
    wins = Counter(" and ".join(_equal(order)) for _, order in ordered)
    listed = ", ".join(f"{name} in {count}" for name, count in wins.most_common())
    place, order = max(ordered, key=lambda item: _lead(item[1]))
    points = "points" if unit == "%" else unit
    clearest = f"the clearest lead is {order[0][0]}'s in {place}, {_with(_lead(order), points)}"
    return f"Of {len(ordered)} comparisons, the best is {listed}; {clearest}."


def leaders_by_measure(places: Sequence[tuple[str, Values, Quantity]], before: str = "By ") -> str:
    """:func:`leaders` for each measure of the panels, after its name."""
    sentences = []
    for measure in {quantity.words: quantity for _, _, quantity in places}.values():
        of_it = [(name, values) for name, values, each in places if each.words == measure.words]
        if said := leaders(of_it, measure.higher_is_better, measure.unit):
            sentences.append(f"{before}{measure.words}: {said}")
    return " ".join(sentences)


def _equal(order: Sequence[tuple[str, float]]) -> list[str]:
    return [name for name, value in order if value == order[0][1]]


def _lead(order: Sequence[tuple[str, float]]) -> float:
    return abs(order[0][1] - order[1][1])


def _with(value: float, unit: str) -> str:
    number = f"{value:.2f}" if 0.1 <= abs(value) < 1e5 or value == 0 else f"{value:.3g}"
    return f"{number} {unit}".rstrip()
