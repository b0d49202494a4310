"""The short form of `make chaos`: damage of each kind, named and mended as the help says."""

import shutil
from base64 import urlsafe_b64encode
from random import Random

from chaos.injections import damage
from support.project import Project

TABLE = "results/tables/demo/ima/table_1.json"
DAMAGED = (
    "results/runs/ima/tiny/fedavg/seed1/rounds.parquet",
    "results/partitions/mnist5k/iid-clients4/seed1.npz",
    "results/data/mnist5k/train_x.npy",
)


OUTLIVED = "results/runs/ima/tiny/fedprox/seed1"


def test_what_is_damaged_is_named_and_made_again(project: Project) -> None:
    """And of a Snakemake that was killed stands neither its lock, nor what its runs have made."""
    before = (project.root / TABLE).read_bytes()
    for number, name in enumerate(DAMAGED):
        damage(project.root / name, Random(number))
    verdict = project.fedrepro("verify", "--full")
    assert verdict.returncode == 1
    lines = [line for line in verdict.stdout.splitlines() if not line.startswith("fedrepro: ")]
    named = {line.partition(": ")[0] for line in lines if "/" in line}
    assert len(named) >= len(DAMAGED), verdict.stdout
    for name in named:
        path = project.root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    timing = (project.root / OUTLIVED / "timing.json").read_bytes()
    name = urlsafe_b64encode(f"{OUTLIVED}/manifest.json".encode()).decode()
    (project.root / ".snakemake/incomplete" / name).write_text('{"external_jobid": null}')
    locks = project.root / ".snakemake/locks"
    locks.mkdir(exist_ok=True)
    (locks / "0.output.lock").write_text(f"{TABLE}\n")
    called = project.snakemake(TABLE)
    assert called.returncode == 0, called.stdout
    assert (project.root / TABLE).read_bytes() == before
    assert not any(path.is_file() for path in (project.root / ".snakemake/incomplete").rglob("*"))
    assert (project.root / OUTLIVED / "timing.json").read_bytes() == timing
