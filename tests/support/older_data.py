"""Prepared data as the first reader of tables made them."""

import json
import os
from pathlib import Path

from fedrepro.data.catalogue.catalogue import digest_of, load_catalogue
from fedrepro.data.dataset import what_is
from fedrepro.data.prepare import recipe_of
from fedrepro.support.checksummed_json import sealed
from fedrepro.support.files import sha256_of


def read_by_the_first_reader(root: Path, name: str) -> None:
    """Let a table that a project has prepared say no more than its first reader said.

    It gave the same samples, but told neither that they are standardised nor which cells are empty.
    """
    folder = root / "results/data" / name
    entry = load_catalogue(root / "config/datasets.yaml").datasets[name]
    meta = json.loads((folder / "meta.json").read_bytes())
    for key in ("standardised", "missing_sha256"):
        meta.pop(key, None)
    for split, about in meta["splits"].items():
        if about["arrays"].pop(f"{split}_missing", None):
            (folder / f"{split}_missing.npy").unlink()
    meta["entry"] = digest_of(entry, 1)
    meta["recipe"] = recipe_of(entry, sha256_of(root / entry.path), 1)
    stat = (folder / "meta.json").stat()
    (folder / "meta.json").write_text(json.dumps(sealed(meta, what_is(name))), encoding="utf-8")
    os.utime(folder / "meta.json", ns=(stat.st_atime_ns, stat.st_mtime_ns))
