"""Manifests that follow a test's changes, which would else be damage."""

import json
from pathlib import Path

from fedrepro.run import fingerprint
from fedrepro.support.files import sha256_of


def follow(folder: Path, *names: str) -> None:
    """Let the manifest in ``folder`` know these files as they are now."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["files"] |= {name: sha256_of(folder / name) for name in names}
    manifest["seal"] = fingerprint.of_manifest(manifest)
    path.write_text(json.dumps(manifest), encoding="utf-8")
