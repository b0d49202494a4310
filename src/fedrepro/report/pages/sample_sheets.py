"""Sample sheets: images that a generating run left after evaluated rounds."""

from dataclasses import dataclass

from fedrepro.report.drawing import sheet
from fedrepro.report.pages.figures.panel import Panel
from fedrepro.run.results import RunRecord

SHEETS = 6  # over time; more would make the page too large
SHOWN, WIDE = 16, 4  # per round, in rows of this length
LAST, LAST_WIDE = 64, 8


@dataclass(frozen=True)
class SampleSheets:
    """The last round's images, and the first few of them over time.

    Attributes:
        over_time: the earliest first; empty if only one round left images.
        shown: images in each of these.
        size: of an image in pixels, such as "28 x 28".
    """

    number: int
    last: str
    over_time: tuple[Panel, ...]
    shown: int
    size: str


def sheets_of(record: RunRecord) -> SampleSheets | None:
    """The sheets of a run, or None if it left no images.

    Raises:
        UserError: if a file of images is damaged.
    """
    rounds = record.rounds_with_images
    if not rounds:
        return None
    last = record.images(rounds[-1])
    height, width = last.shape[2:]
    whole = sheet.draw(
        last[:LAST],
        LAST_WIDE,
        description=f"{len(last[:LAST])} sample images of {height} x {width} pixels after round "
        f"{rounds[-1]}.",
    )
    over_time = [
        Panel(
            f"Round {number}",
            sheet.draw(
                record.images(number)[:SHOWN],
                WIDE,
                description=f"The first {len(last[:SHOWN])} of these images after round {number}.",
            ),
        )
        for number in spread(rounds, SHEETS)
    ]
    shown = tuple(over_time) if len(rounds) > 1 else ()
    return SampleSheets(rounds[-1], whole, shown, len(last[:SHOWN]), f"{height} x {width}")


def spread(numbers: list[int], most: int) -> list[int]:
    """At most so many of them, evenly spaced, including the first and the last."""
    if len(numbers) <= most:
        return numbers
    places = (round(index * (len(numbers) - 1) / (most - 1)) for index in range(most))
    return [numbers[place] for place in places]
