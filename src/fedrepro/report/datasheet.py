"""Export a synthetic data set as a folder: images, labels, a preview sheet and a datasheet.

The folder is what the data set kind ``synthetic`` reads.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro import __version__
from fedrepro.data.readers.synthetic import DATASHEET, IMAGES
from fedrepro.measures.registry import SETS
from fedrepro.report.drawing import sheet
from fedrepro.run.results import RunRecord
from fedrepro.support.files import sha256_of
from fedrepro.support.printing import sentence_case

SHEET, README = "sheet.png", "README.md"
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
    (folder / README).write_text(_in_words(about), encoding="utf-8")


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


def _in_words(about: Mapping[str, Any]) -> str:
    run, source, shape = about["run"], about["source"], "x".join(map(str, about["shape"]))
    counts = zip(about["class_names"], about["per_class"], strict=True)
    numbers = {name: about["quality"].get(name) for name in SETS}
    lines = [
        f"# {about['title']}",
        f"{about['samples']} synthetic images ({shape}), labelled, made by `{run['method']}` in "
        f"{run['rounds']} federated rounds from {source['title']}.",
        f"- Run: `{run['setting']} {run['method']}`, seed {run['seed']}, configuration "
        f"`{run['config_hash'][:12]}`; `{DATASHEET}` has all of it.",
        f"- Images of each class: {', '.join(f'{name} {count}' for name, count in counts)}.",
        f"- Licence of the source data: {source['licence']}. {source['citation']}",
        "## Files",
        f"- `{IMAGES}`: `x`, uint8 [n, channels, height, width], and `y`, int64 [n], which numpy "
        "reads with `allow_pickle=False`.\n"
        f"- `{SHEET}`: a row for each class.\n"
        f"- `{DATASHEET}`: the same for programs, with the files' SHA-256.",
        "## Quality",
        "\n".join(_lines_of(numbers)) or "Not evaluated yet: run `fedrepro quality`.",
        "## Privacy",
        about["privacy"],
        "## Use",
        "To use it in fedrepro, put this right below the line `datasets:` in config/datasets.yaml:",
        "```yaml\n  my_synthetic_set:\n    kind: synthetic\n    title: "
        f"{json.dumps(about['title'], ensure_ascii=False)}\n    licence: "
        f"{json.dumps(source['licence'], ensure_ascii=False)}\n"
        "    citation: none\n    path: PATH/OF/THIS/FOLDER\n```",
    ]
    return "\n\n".join(lines) + "\n"


def _lines_of(numbers: Mapping[str, float | None]) -> list[str]:
    """The available measures, in the units of tables."""
    lines = []
    for name, value in numbers.items():
        if value is not None:
            measure = SETS[name]
            words, shown = sentence_case(measure.words), measure.factor * value
            lines.append(f"- {words}: {shown:.2f} {measure.unit}".rstrip())
    return lines
