"""Who holds what: a partition as a heat map."""

import math
from collections.abc import Sequence

from fedrepro.report.drawing.style import HEAT, finish


def draw(counts: Sequence[Sequence[int]], *, description: str, width: int = 720) -> str:
    """Clients from left to right, classes from top to bottom; darker is more samples.

    ``counts`` are numbers of training samples, [clients][classes]; ``width`` is how wide it will
    be shown, in pixels, so that its words are as large as others.
    """
    import altair as alt

    clients, classes = len(counts), len(counts[0])
    most = max(max(row) for row in counts)
    values = [
        {"x": client, "x2": client + 1, "y": label, "y2": label + 1,
         "share": round(0.12 + 0.88 * count / most, 3)}
        for client, row in enumerate(counts)
        for label, count in enumerate(row)
        if count
    ]  # fmt: skip
    step = max(1, math.ceil(classes / 10))
    ticks = list(range(0, classes, step))
    chart = (
        alt.Chart(alt.InlineData(values))
        .mark_rect(fill=HEAT, stroke=None)
        .encode(
            x=alt.X(
                "x:Q",
                title="client",
                scale=alt.Scale(domain=[0, clients], nice=False),
                axis=alt.Axis(grid=False, tickCount=10, format="d"),
            ),
            x2="x2:Q",
            y=alt.Y(
                "y:Q",
                title="class",
                scale=alt.Scale(domain=[classes, 0], nice=False),
                axis=alt.Axis(
                    grid=False,
                    ticks=False,
                    values=[tick + 0.5 for tick in ticks],
                    labelExpr="floor(datum.value)",
                ),
            ),
            y2="y2:Q",
            fillOpacity=alt.FillOpacity("share:Q", scale=None),
        )
        .properties(width=width, height=max(130, min(300, 15 * classes)))
    )
    return finish(chart, description)
