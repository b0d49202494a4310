"""The image of workflow/envs/Dockerfile, built and with a run in it: `pytest tests/container`.

It takes minutes, gigabytes and a registry, so it is neither in `make test` nor in `make check`.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.places import ROOT

BASE, TAG = "docker.io/library/debian:12-slim", "localhost/fedrepro-test"
BUILDER = shutil.which("podman") or shutil.which("buildah")


def call(*words: object) -> subprocess.CompletedProcess[str]:
    command = [str(BUILDER), *(str(word) for word in words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def inside(folder: Path, *words: str) -> str:
    """What a command in the image says, with a folder of this machine as its own."""
    if Path(str(BUILDER)).name == "podman":
        called = call("run", "--rm", "-v", f"{folder}:/bench", "-w", "/bench", TAG, *words)
    else:
        name = call("from", TAG).stdout.strip()
        where = ("-v", f"{folder}:/bench", "--workingdir", "/bench")
        called = call("run", "--isolation", "chroot", *where, name, "--", *words)
        call("rm", name)
    assert called.returncode == 0, called.stderr
    return called.stdout


@pytest.fixture(scope="module")
def image() -> None:
    """Build it; here it is skipped without a builder or its base, in CI it fails."""
    why = "neither podman nor buildah is there"
    if BUILDER:
        pulled = call("pull", BASE)
        why = f"{BASE}: {(pulled.stderr.splitlines() or [''])[-1]}" if pulled.returncode else ""
    if why and "CI" not in os.environ:
        pytest.skip(why)
    assert not why, why
    isolation = () if Path(str(BUILDER)).name == "podman" else ("--isolation", "chroot")
    arguments = ("--build-arg", "TORCH=cpu", "-f", "workflow/envs/Dockerfile", "-t", TAG)
    built = call("build", *isolation, *arguments, ".")
    assert built.returncode == 0, built.stderr[-2000:]


@pytest.mark.usefixtures("image")
def test_the_image_makes_a_workbench_and_a_run(tmp_path: Path) -> None:
    inside(tmp_path, "fedrepro", "init", "mine")
    inside(tmp_path, "fedrepro", "--root", "mine", "run", "mine/even", "fedavg", "--seed", "1")
    folder = tmp_path / "mine/results/runs/mine/even/fedavg/seed1"
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["status"] == "finished"
    assert manifest["packages"]["torch"]
