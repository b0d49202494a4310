"""How the workbench bears many runs: `python tests/benchmarks/scale.py [NAME ...]`.

Seconds are of this machine's clock and CPU, megabytes the most that one process held. What a run
leaves is made up; nothing is trained but in `clients`. Writes results/bench/scale.json.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from fedrepro.config.loading import load
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import Iid
from support import tiny_run
from support.manifests import write_manifest
from support.places import ROOT
from support.project import Project
from support.report_world import write_run
from support.results_tree import RUN, write_tree

RESULT = ROOT / "results/bench/scale.json"
CONFIG = "scale: demo\nseeds: {demo: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], paper: [1]}\n"
HEAD = """\
system: ima
title: Many
paper: none
methods:
  "prox{number}": { for: { number: [NUMBERS] }, variant_of: fedprox, mu: "{number}" }
settings:
  "many{row}":
    for: { row: [ROWS] }
    dataset: mnist5k
    partition: {scheme: iid, clients: 4}
    model: logistic
    rounds: 3
    participation: 0.5
    epochs: 1
    batch_size: "{row}"
    optimizer: {lr: 0.1}
tables:
"""
TABLE = """\
  table_{table}:
    title: Many
    summary: {rounds: 1}
    rows:
      - {for: {row: [{rows}]}, label: "row {row}", setting: "many{row}"}
    columns:
      - {for: {number: [NUMBERS]}, label: "number {number}", method: "prox{number}"}
"""


def many(root: Path, tables: int, rows: int, columns: int) -> Project:
    """A project of ``tables * rows * columns * 10`` runs."""
    numbers = ", ".join(str(1000 + number) for number in range(columns))
    every = [list(range(1 + rows * table, 1 + rows * (table + 1))) for table in range(tables)]
    text = HEAD.replace("ROWS", ", ".join(str(row) for some in every for row in some))
    for table, some in enumerate(every, 1):
        listed = ", ".join(map(str, some))
        text += TABLE.replace("{table}", str(table)).replace("{rows}", listed)
    return Project.make(root, CONFIG, text.replace("NUMBERS", numbers))


def measured(command: list[str], project: Path, path: str) -> dict[str, float]:
    """Seconds and megabytes of a command and its children."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
        "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    called = subprocess.run(
        [sys.executable, "-c", program, sys.executable, "-m", *command],
        cwd=project,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu_seconds": cpu, "megabytes": int(called.stdout) / 1024}


def paper(folder: Path) -> dict[str, float]:
    """A dry run of everything at scale paper; the first checks the methods and is not counted."""
    command = ["snakemake", "-n", "--quiet", "all", "--config", "scale=paper"]
    measured(command, ROOT, str(ROOT / "src"))
    return measured(command, ROOT, str(ROOT / "src"))


def twenty_thousand(folder: Path) -> dict[str, float]:
    """A dry run of 20,000 runs in ten tables."""
    project = many(folder / "project", 10, 10, 20)
    command = ["snakemake", "-n", "--quiet", "all"]
    run = "results/runs/ima/many1/prox1000/seed1/manifest.json"
    measured(["snakemake", "-n", run, "--quiet", "all"], project.root, project.path)
    return measured(command, project.root, project.path)


def table(folder: Path) -> dict[str, float]:
    """A table of 1,000 runs."""
    project = many(folder / "project", 1, 10, 10)
    finish(project)
    return measured(["fedrepro", "table", "ima", "table_1"], project.root, project.path)


def reported(folder: Path) -> dict[str, float]:
    """A table of 5,000 runs, its page, and the site with the runs' pages; idle seconds of each."""
    project = many(folder / "project", 1, 10, 50)
    finish(project)
    found: dict[str, float] = {}
    for name in ("table", "page", "site"):
        what = [name, "ima", "table_1"] if name != "site" else [name]
        taken = measured(["fedrepro", *what], project.root, project.path)
        found |= {f"{name}_{key}": value for key, value in taken.items()}
    return found


def finish(project: Project, but: int = 0) -> None:
    """Make up what the runs leave, but of the last ones."""
    bench = load(project.root)
    runs = list(dict.fromkeys(run for each in bench.targets().values() for run in each.runs))
    for number, run in enumerate(runs[: len(runs) - but]):
        made = write_run(bench, run, [0.5, 0.6, 0.7 + number / 10**5])
        for name in ("clients.parquet", "model.safetensors"):
            shutil.copyfile(made / "rounds.parquet", made / name)


def resumed(folder: Path) -> dict[str, float]:
    """To the first job of a call, of 3,000 runs, ten of them missing."""
    project = many(folder / "project", 3, 10, 10)
    finish(project)
    runs = sorted((project.root / "results/runs").glob("ima/*/*/seed*"))
    made = [str((run / "manifest.json").relative_to(project.root)) for run in runs]
    listed = project.root / "listed"
    listed.write_text("\n".join(made), encoding="utf-8")
    command = f"xargs {sys.executable} -m snakemake --cores 1 --quiet all --touch < listed"
    environment = {**os.environ, "PYTHONPATH": project.path}
    subprocess.run(["bash", "-c", command], cwd=project.root, env=environment, check=True)
    for run in runs[-10:]:
        shutil.rmtree(run)
    shutil.rmtree(project.root / "results/logs", ignore_errors=True)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "snakemake", "--cores", "1"],
        cwd=project.root,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not any((project.root / "results/logs").rglob("*.log")):
        time.sleep(0.05)
    seconds = time.perf_counter() - began
    fields = Path(f"/proc/{process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    process.terminate()
    process.wait()
    return {"seconds": seconds, "cpu_seconds": ticks / os.sysconf("SC_CLK_TCK")}


def verify(folder: Path) -> dict[str, float]:
    """A tree of 10,000 runs, all whole."""
    write_tree(folder / "one")
    source = folder / "one" / RUN
    manifest = json.loads((source / "manifest.json").read_text("utf-8"))
    from fedrepro.provenance import fingerprint

    for number in range(10_000):
        run = folder / f"results/runs/test/blobs{number // 10}/fedavg/seed{number % 10}"
        shutil.copytree(source, run)
        described = {**manifest["run"], "setting": f"test/blobs{number // 10}"}
        about = {**manifest, "run": {**described, "seed": number % 10}}
        about["config_hash"] = fingerprint.of_text(json.dumps(about["run"], sort_keys=True))
        write_manifest(run, about)
    return measured(["fedrepro", "verify"], folder, str(ROOT / "src"))


def clients(folder: Path) -> dict[str, float]:
    """10 rounds of 10 of 10,000 clients, each of which keeps a state: growth after the first."""
    y = np.arange(40_000) % 3
    data = tiny_run.dataset()
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (len(y), 1, 2, 2), dtype=np.uint8)
    from dataclasses import replace

    from fedrepro.run import runner

    data = replace(data, train=replace(data.train, x=x, y=y.astype(np.int64)))
    began, cpu = time.perf_counter(), time.process_time()
    partition = make_partition(data.train.y, None, Iid(scheme="iid", clients=10_000), 1)
    held: list[int] = []

    def note(progress: object) -> None:
        held.append(int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096)

    spec = tiny_run.run_spec(
        "scaffold", rounds=10, participation=0.001,
        partition={"scheme": "iid", "clients": 10_000},
    )  # fmt: skip
    runner.run(spec, data, partition, folder / "seed1", "code", note)
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "megabytes": max(held) / 2**20,
        "grown_megabytes": (held[-1] - held[0]) / 2**20,
    }


def scored(folder: Path) -> dict[str, float]:
    """CPU time of a round of training 100 of 10,000 clients, and of scoring all of them."""
    import fedrepro as fr
    from fedrepro.run import runner, scoring

    spent = {"training": 0.0, "scoring": 0.0}

    def timed(module: object, name: str, key: str) -> None:
        before = getattr(module, name)

        def call(*arguments: object) -> object:
            began = time.process_time()
            try:
                return before(*arguments)
            finally:
                spent[key] += time.process_time() - began

        setattr(module, name, call)

    timed(runner, "play_round", "training")
    timed(scoring, "_record_clients", "scoring")
    random, clients, rounds = np.random.default_rng(0), 10_000, 5
    x = random.normal(size=(clients, 3, 8)).astype(np.float32)
    y = np.tile(np.arange(3), (clients, 1))
    fr.train(
        "fedavg", "logistic", list(zip(x, y, strict=True)), rounds=rounds, participation=0.01,
        test_fraction=0.34, executor="sequential", folder=folder / "run",
    )  # fmt: skip
    return {f"{key}_milliseconds": 1000 * value / rounds for key, value in spent.items()}


MEASURES: dict[str, Callable[[Path], dict[str, float]]] = {
    each.__name__: each
    for each in (
        paper,
        twenty_thousand,
        table,
        reported,
        resumed,
        verify,
        clients,
        scored,
    )
}


def main(names: Iterable[str]) -> None:
    found = json.loads(RESULT.read_text("utf-8")) if RESULT.exists() else {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = MEASURES[name](Path(folder))
        print(name, {key: round(value, 1) for key, value in found[name].items()}, flush=True)
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:] or MEASURES)
