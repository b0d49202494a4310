"""The sizes and colours of images as their files have them, for `fedrepro check-data`."""

from collections import Counter
from typing import NamedTuple

from fedrepro.support.errors import listed

MODES = {  # Pillow's names of colours that users know by another one
    "1": "black and white",
    "L": "grey",
    "LA": "grey with alpha",
    "P": "palette",
    "RGBA": "RGB with alpha",
}


class Look(NamedTuple):
    """The properties of an image file.

    Attributes:
        mode: its colours, in Pillow's words.
        size: (width, height) in pixels.
        several: whether it has several frames or pages, of which the first is read.
        turned: whether its EXIF orientation turns or mirrors it.
        transparent: whether the background shows through it.
    """

    mode: str
    size: tuple[int, int]
    several: bool
    turned: bool
    transparent: bool


def facts(
    looks: "Counter[Look]", channels: int, height: int, width: int, background: str
) -> list[tuple[str, str]]:
    """The sizes and colours of images, and how many become images of another size or colour."""
    mode = "RGB" if channels == 3 else "L"
    sizes = Counter(f"{look.size[1]}x{look.size[0]}" for look in looks.elements())
    colours = Counter(MODES.get(look.mode, look.mode) for look in looks.elements())
    resized = sum(look.size != (width, height) for look in looks.elements())
    converted = sum(look.mode != mode for look in looks.elements())

    def how_many(which: str, words: str) -> str:
        count = sum(getattr(look, which) for look in looks.elements())
        return f"{words}: {count} of {looks.total()}" if count else ""

    def said(counts: "Counter[str]", changed: int, change: str) -> str:
        names = listed([f"{name} ({count})" for name, count in counts.most_common()])
        return f"{names}; {change}: {changed} of {looks.total()}" if changed else names

    return [
        ("height x width", said(sizes, resized, f"resized to {height}x{width}")),
        ("colours", said(colours, converted, f"converted to {MODES.get(mode, mode)}")),
        ("orientation", how_many("turned", "turned as EXIF says")),
        ("transparent", how_many("transparent", f"put on {background}")),
        ("frames", how_many("several", "first of several read")),
    ]
