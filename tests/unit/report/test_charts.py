"""Charts by themselves: what stands on which axis, and which mark stands out."""

import re

import pytest

from fedrepro.report.drawing import charts


def text_of(svg: str, text: str) -> str:
    """The opening tag of a text."""
    (found,) = re.findall(rf"<text([^>]*)>{text}</text>", svg)
    return found


@pytest.mark.parametrize(("rising", "share"), [(True, "0.5"), (False, "0.06")])
def test_a_matrix_names_its_axes_and_frames_its_best_cell(rising: bool, share: str) -> None:
    values = [[1.0, 3.0], [2.0, None]]
    titles = ("across", "upwards")
    svg = charts.matrix(
        values, x=("a", "b"), y=("c", "d"), titles=titles, rising=rising, description="A grid."
    )
    assert "rotate(-90" in text_of(svg, "upwards")
    assert "rotate" not in text_of(svg, "across")
    cells = [tag for tag in re.findall(r"<path[^>]*>", svg) if "stroke-width" in tag]
    widths = [re.findall(r'stroke-width="([^"]*)"', tag)[0] for tag in cells]
    assert sorted(widths) == ["0", "0", "0", "1.5"]
    assert f'fill-opacity="{share}"' in cells[widths.index("1.5")]
    for text in ("1.00", "2.00", "3.00", "–"):
        assert text_of(svg, text)
