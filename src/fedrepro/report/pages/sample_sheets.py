"""Sample sheets: images that a generating run left after evaluated rounds."""

from types import SimpleNamespace

from fedrepro.report.drawing import sheet
from fedrepro.report.drawing.sheet import training_images
from fedrepro.report.pages.figures.base import Panel
from fedrepro.run.results import RunRecord

SHEETS = 6  # over time; more would make the page too large
SHOWN, WIDE = 16, 4  # per round, in rows of this length
LAST, LAST_WIDE = 64, 8
CLASSES = 8  # of training images beside them, the first ones


def sheets_of(record: RunRecord) -> SimpleNamespace | None:
    """The last round's images and the first few of them over time; None if the run left no images.

    Beside them ``real`` training images, a row of each class, if the data are prepared here.

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
    real = training_images(record.root, record, CLASSES, LAST_WIDE)
    beside = real is not None and sheet.draw(
        real, LAST_WIDE, description=f"{len(real)} training images, {LAST_WIDE} of each class."
    )
    return SimpleNamespace(
        number=rounds[-1],
        last=whole,
        over_time=over_time if len(rounds) > 1 else [],
        real=beside or None,
        shown=len(last[:SHOWN]),
        size=f"{height} x {width}",
    )


def spread(numbers: list[int], most: int) -> list[int]:
    """At most so many of them, evenly spaced, including the first and the last."""
    if len(numbers) <= most:
        return numbers
    places = (round(index * (len(numbers) - 1) / (most - 1)) for index in range(most))
    return [numbers[place] for place in places]
