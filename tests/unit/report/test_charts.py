"""Charts by themselves: what stands on which axis, and which mark stands out."""

import re

import pytest

from fedrepro.report.drawing import charts


def text_of(svg: str, text: str) -> str:
    """The opening tag of a text."""
    (found,) = re.findall(rf"<text([^>]*)>{text}</text>", svg)
    return found


@pytest.mark.parametrize(("higher_is_better", "best"), [(True, 1), (False, 0)])
def test_a_matrix_names_its_axes_and_frames_its_best_cell(
    higher_is_better: bool, best: int
) -> None:
    values = [[1.0, 3.0], [2.0, None]]
    titles = ("across", "upwards")
    framed = {(0, 1) if higher_is_better else (0, 0)}
    svg = charts.matrix(
        values, x=("a", "b"), y=("c", "d"), titles=titles, framed=framed, description="A grid."
    )
    assert "rotate(-90" in text_of(svg, "upwards")
    assert "rotate" not in text_of(svg, "across")
    cells = re.findall(
        r'<path d="(M[^"]*z)" fill="var\(--surface-high\)" fill-opacity="([^"]*)"', svg
    )
    assert [share for _, share in cells] == ["0.06", "0.7", "0.38", "0"]  # darker is more
    (frame,) = re.findall(r'<path d="(M[^"]*z)" fill="none"', svg)
    assert frame == cells[best][0]
    for text in ("1.00", "2.00", "3.00", "–"):
        assert text_of(svg, text)
