"""Manifests that follow a test's changes, which would else be damage."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.run.results import TIMING, timing_of
from fedrepro.support import checksummed_json
from fedrepro.support.files import sha256_of


def follow(folder: Path, *names: str) -> None:
    """Let the manifest in ``folder`` know these files as they are now."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"] |= {name: sha256_of(folder / name) for name in names}
    write_manifest(folder, manifest)


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """A manifest with its checksum, and the timing.json that belongs to it, if there is one."""
    content = {**manifest, "seal": checksummed_json.seal_of(manifest)}
    (folder / "manifest.json").write_text(json.dumps(content), encoding="utf-8")
    if (folder / TIMING).exists():
        checksummed_json.write(
            folder / TIMING, checksummed_json.parsed(folder / TIMING), timing_of(content)
        )


def write_bare(root: Path, run: RunKey, **more: Any) -> Path:
    """The manifest of a finished run that says little else. Returns the run's folder."""
    folder = root / run.folder
    folder.mkdir(parents=True, exist_ok=True)
    named = {"setting": run.setting, "method": run.method, "seed": run.seed}
    write_manifest(folder, {"status": "finished", "files": {}, "run": named, **more})
    return folder
