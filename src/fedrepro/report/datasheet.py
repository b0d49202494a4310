"""Export a synthetic data set as a folder: images, labels, a preview sheet and a datasheet.

The folder is what the data set kind ``synthetic`` reads.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro import __version__
from fedrepro.data.readers.own_arrays import DATASHEET, IMAGES
from fedrepro.measures.registry import SETS
from fedrepro.report.drawing import sheet
from fedrepro.report.pages.templates import TEMPLATES, environment
from fedrepro.run.results import RunRecord
from fedrepro.support.files import sha256_of
from fedrepro.support.packaged import ORIGIN

SHEET, README = "sheet.png", "README.md"
NOTE = "datasheet.md.j2"  # the template of README.md
PER_ROW = 20  # images per class on the sheet, at most
CAVEAT = (
    "The images were made from clients' data without a privacy guarantee: nothing bounds "
    "what they reveal about a single sample. A failed membership attack "
    "proves nothing."
)


def write_export(
    folder: Path,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    record: RunRecord,
    source: Mapping[str, Any],
) -> None:
    """Write to an empty folder: ``images.npz``, ``sheet.png``, ``datasheet.json``, ``README.md``.

    Args:
        images: [n, 1 or 3, height, width], labels: [n], from 0.
        source: meta.json of the clients' data.
    """
    np.savez_compressed(folder / IMAGES, x=images, y=labels)
    (folder / SHEET).write_bytes(_sheet(images, labels))
    about = _about(images, labels, record, source)
    about["sha256"] = {name: sha256_of(folder / name) for name in (IMAGES, SHEET)}
    text = json.dumps(about, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / DATASHEET).write_text(text, encoding="utf-8")
    template = environment(ORIGIN / TEMPLATES).get_template(NOTE)
    note = template.render(
        about=about, measures=SETS, quoted=partial(json.dumps, ensure_ascii=False)
    )
    (folder / README).write_text(f"{note.strip()}\n", encoding="utf-8")


def _sheet(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> bytes:
    """A row of images for each class, as wide as the largest class."""
    classes = np.unique(labels)
    rows = [np.flatnonzero(labels == label)[:PER_ROW] for label in classes]
    wide = max(len(row) for row in rows)
    canvas = np.full((len(rows) * wide, *images.shape[1:]), 255, np.uint8)
    for place, each in enumerate(rows):
        canvas[place * wide : place * wide + len(each)] = images[each]
    return sheet.png(canvas, wide)


def _about(
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    record: RunRecord,
    source: Mapping[str, Any],
) -> dict[str, Any]:
    names: Sequence[str] = source["class_names"]
    quality, manifest = record.quality, record.manifest
    return {
        "title": f"Synthetic {source['title']}: {record.run.method}",
        "made_by": f"fedrepro {__version__}",
        "samples": len(labels),
        "shape": list(images.shape[1:]),
        "class_names": list(names),
        "per_class": np.bincount(labels, minlength=len(names)).tolist(),
        "source": {
            key: source.get(key)
            for key in ("name", "title", "licence", "citation", "content_sha256")
        },
        "run": {
            "setting": record.run.setting,
            "method": record.run.method,
            "seed": record.run.seed,
            "rounds": manifest["rounds_done"],
            "config_hash": manifest["config_hash"],
            "code": manifest["code"],
            "description": manifest["run"],
        },
        "quality": dict(quality.get("numbers", {})),
        "judged_by": quality.get("judge"),
        "privacy": CAVEAT,
    }
