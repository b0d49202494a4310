"""Render docs/benchmarks.md from what `make bench` measured, and print its tables."""

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

ENGINE = Path("results/bench/engine.json")
START = Path("results/bench/start.json")
PARALLEL = Path("results/bench/parallel.json")
AGGREGATION = Path("results/bench/aggregation.json")
STORE = Path("results/bench/store.json")
PRECISION = Path("results/bench/precision.json")
SHARES = Path("results/bench/shares.json")
STACKING = Path("results/bench/stacking.json")
PAGE = Path("docs/benchmarks.md")
WORKLOADS = ("W1", "W2", "W3", "W4")

# Measured in the same way on a machine of the same kind (two cores, torch 2.15), once, with these
# versions; `make bench` doesn't measure them again. Flower's are seconds of wall time on two cores.
PEERS = {
    "pfl-research 0.6": (0.91, 0.78, 0.40, 0.95),
    "fluke 0.8": (0.92, 0.92, 0.39, 0.92),
    "Flower 1.41 with Ray, two cores, wall time": (0.97, 0.49, 0.02, 1.31),
}

TEXT = """\
# Benchmarks

Rendered by `make bench` from `results/bench/*.json`; not typed.

Each workload is trained by FedAvg twice in the same process, by turns: by the engine and by a bare
PyTorch loop (one `nn.Module`, one `torch.optim.SGD`, tensors in memory, the same steps, one thread:
`tests/benchmarks/loops.py`). A figure is the median ratio of their steps per CPU second: 1.00 is as
fast as the bare loop, more is faster. The vectorised executor stacks clients and compiles the
stacked step; compiling happens once per run and is not counted. Neither side evaluates or records.

{titles}

{ratios}

*Earlier*: measured once, in the same way, on a machine of the same kind; not measured again here.

{details}

{machine}
{start}{precision}{stacking}{parallel}{shares}{store}{aggregation}"""

BFLOAT16 = """
## Fewer bits

Settings with `precision: bfloat16` train with the products of convolutions and matrices in 8
bits of precision; the rows "bfloat16" above are theirs, on a processor with{native}
instructions for it. {title}: test accuracy, mean of the last {rounds} rounds.

{accuracies}

In bfloat16 {difference:+.2f} points over {count} seeds, 95 % interval ± {half_width:.2f}
(paired t); CPU time {cpu:.2f} of float32's.

{machine}
"""

STACKED = """
## Which runs are stacked

How many times as fast clients side by side are as one after another, CPU time by turns on W2 by
the clients' momentum; compiling takes some {compiling:.0f} s beside it. `PAYS_FROM` in
`engine/executors.py` follows from it: steps as FedAvg's with momentum are left one after
another.

{ratios}

{machine}
"""

WHERE = """
## Where the time of a run goes

Shares of the CPU time of whole runs at scale paper, of which a few rounds are played on random
data of the real sizes (`tests/benchmarks/shares.py`): what is done every round or at every
evaluation counts as often as in the whole run. "Evaluation" includes all clients' at the end,
"store" checkpoints, clients' states and the finished folder, "start" the imports.

{shares}

{machine}
"""

DEALT_OUT = """
## Two processes on one run

{ratios}

How many times as fast as `sequential` the rounds of `parallel` are by the wall clock, with two
processes on two cores: medians of runs by turns. Clients are dealt out whole, so that with five of
them in a round, no two processes can be more than 5/3 as fast as one.

{machine}
"""

DECISIONS = """
## One decision on mixing coefficients

{decisions}

CPU time is the median of 15 decisions on synthetic losses on one core; memory is the most that one
decision takes, both states counted (`tests/benchmarks/test_aggregation.py`). AAggFF-D is linear in
the number of clients.

{replay}

{machine}
"""


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio_table(measured: list[dict[str, Any]]) -> str:
    """One row per executor and per peer, one column per workload."""
    rows = []
    for executor in sorted({one["executor"] for one in measured}):
        own = {one["workload"]: one["ratio"] for one in measured if one["executor"] == executor}
        cells = [f"**{own[name]:.2f}**" if name in own else "" for name in WORKLOADS]
        rows.append([f"fedrepro, {executor}", *cells])
    rows += [
        [f"{name} (*earlier*)", *(f"{ratio:.2f}" for ratio in ratios)]
        for name, ratios in PEERS.items()
    ]
    return table(["", *WORKLOADS], rows)


def detail_table(measured: list[dict[str, Any]]) -> str:
    """What the ratios are made of."""
    head = ["", "executor", "ratio", "lowest to highest", "steps per CPU second", "bare loop"]
    rows = [
        [
            one["workload"],
            one["executor"],
            f"{one['ratio']:.2f}",
            f"{min(one['ratios']):.2f} to {max(one['ratios']):.2f}",
            f"{one['steps_per_cpu_second']:.4g}",
            f"{one['bare_steps_per_cpu_second']:.4g}",
        ]
        for one in measured
    ]
    return table(head, rows)


def machine_line(measured: list[dict[str, Any]]) -> str:
    """Where and with what the newest measurement was made."""
    newest = max(measured, key=lambda one: one["measured"])
    machine, versions = newest["machine"], newest["versions"]
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"Measured on {newest['measured']}: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['system']}; {packages}."
    )


def start_line() -> str:
    if not START.exists():
        return ""
    start = json.loads(START.read_text())
    return (
        f"\nFrom the command to the end of a run's first round, in a new process "
        f"(`{start['command']}`, data prepared): {start['seconds']:.1f} s of wall time, "
        f"{start['cpu_seconds']:.1f} s of CPU time, medians of {len(start['measurements'])} "
        f"(load {start['machine']['load']:.1f} on {start['machine']['cores']} cores).\n"
    )


def parallel_section() -> str:
    """What several processes gain; nothing where it is not measured."""
    if not PARALLEL.exists():
        return ""
    measured = json.loads(PARALLEL.read_text())
    rows = [
        [
            one["workload"],
            f"{one['ratio']:.2f}",
            f"{min(one['ratios']):.2f} to {max(one['ratios']):.2f}",
            f"{one['at_most']:.2f}",
            f"{one['seconds_per_round']:.2g} s",
        ]
        for one in measured
    ]
    head = ["", "ratio", "lowest to highest", "at most", "a round of `sequential`"]
    return DEALT_OUT.format(ratios=table(head, rows), machine=machine_line(measured))


def precision_section() -> str:
    """What bfloat16 does to an accuracy; nothing where it is not measured."""
    if not PRECISION.exists():
        return ""
    one = json.loads(PRECISION.read_text())
    exact, low = one["float32"], one["bfloat16"]
    pairs = zip(exact["accuracies"], low["accuracies"], strict=True)
    differences = np.array([ours - theirs for theirs, ours in pairs])
    count = len(differences)
    error = float(differences.std(ddof=1)) / count**0.5
    rows = [
        [name, *(f"{value:.2f}" for value in one[name]["accuracies"])]
        for name in ("float32", "bfloat16")
    ]
    return BFLOAT16.format(
        native="" if one["native"] else "out",
        title=one["title"],
        rounds=one["rounds"],
        accuracies=table(["%, by seed", *map(str, one["seeds"])], rows),
        difference=differences.mean(),
        count=count,
        half_width=float(stats.t.ppf(0.975, count - 1)) * error,
        cpu=low["cpu_seconds"] / exact["cpu_seconds"],
        machine=machine_line([one]),
    )


def stacking_section() -> str:
    """What stacking gains by method and momentum; nothing where it is not measured."""
    if not STACKING.exists():
        return ""
    measured = json.loads(STACKING.read_text())
    momenta = sorted({one["executor"] for one in measured})
    ratios = {(one["workload"], one["executor"]): one["ratio"] for one in measured}
    methods = dict.fromkeys(one["workload"] for one in measured)
    rows = []
    for name in methods:
        found = (ratios.get((name, momentum)) for momentum in momenta)
        rows.append([name, *(f"{ratio:.2f}" if ratio else "" for ratio in found)])
    return STACKED.format(
        compiling=statistics.median(one["compiling"] for one in measured),
        ratios=table(["", *momenta], rows),
        machine=machine_line(measured),
    )


def shares_section() -> str:
    """What the CPU time of whole runs goes into; nothing where it is not measured."""
    if not SHARES.exists():
        return ""
    measured = json.loads(SHARES.read_text())
    parts = list(measured[0]["cpu_seconds"])
    rows = []
    for one in measured:
        whole = sum(one["cpu_seconds"].values())
        shares = (f"{one['cpu_seconds'][part] / whole:.1%}" for part in parts)
        rows.append([f"`{one['workload']}`", *shares, f"{whole:,.0f} s", str(one["rounds"])])
    return WHERE.format(
        shares=table(["run", *parts, "all", "rounds"], rows), machine=machine_line(measured)
    )


def store_section() -> str:
    """What it takes to keep clients' personal models; nothing where it is not measured."""
    if not STORE.exists():
        return ""
    (one,) = json.loads(STORE.read_text())
    return (
        "\n## Personal models of many clients\n\n"
        f"{one['clients']:,} clients, each with a model of its own of {one['parameters']:,} "
        f"parameters, {one['bytes_of_states'] / 1e9:.1f} GB on disk, ten clients in a round "
        "(SuPerFed, `tests/benchmarks/client_states.py`): at most "
        f"{one['peak_memory_bytes'] / 1e9:.2f} GB of memory; a round takes "
        f"{one['seconds_per_round']:.1f} s, of which reading and writing the models is "
        f"{one['share_of_the_store']:.0%}.\n"
    )


def aggregation_section() -> str:
    """What AAggFF's two rules take, by the number of clients; nothing where it is not measured."""
    if not AGGREGATION.exists():
        return ""
    measured = json.loads(AGGREGATION.read_text())
    decisions = sorted(
        (one for one in measured if "clients" in one),
        key=lambda one: (one["executor"], one["clients"]),
    )
    rows = [
        [
            one["executor"],
            f"{one['clients']:,}",
            f"{one['sampled']:,}",
            f"{1000 * one['seconds']:.3g} ms",
            f"{one['bytes'] / 1e6:.3g} MB",
        ]
        for one in decisions
    ]
    whole = [one for one in measured if one["workload"].startswith("replay-")]
    lines = []
    for one in whole:
        clients, rounds = one["workload"].removeprefix("replay-").split("x")
        lines.append(
            f"{int(rounds):,} rounds of {int(clients):,} clients, replayed by {one['executor']}: "
            f"{one['seconds']:.0f} s of CPU time."
        )
    head = ["rule", "clients", "taking part", "CPU time", "memory"]
    return DECISIONS.format(
        decisions=table(head, rows), replay="\n".join(lines), machine=machine_line(measured)
    )


def main() -> None:
    measured = sorted(
        json.loads(ENGINE.read_text()), key=lambda one: (one["workload"], one["executor"])
    )
    titles = {one["workload"]: one["title"] for one in measured}
    ratios, details = ratio_table(measured), detail_table(measured)
    page = TEXT.format(
        titles="\n".join(f"- {name}: {title}" for name, title in titles.items()),
        ratios=ratios,
        details=details,
        machine=machine_line(measured),
        start=start_line(),
        precision=precision_section(),
        stacking=stacking_section(),
        parallel=parallel_section(),
        shares=shares_section(),
        store=store_section(),
        aggregation=aggregation_section(),
    )
    PAGE.write_text(page)
    print(page[page.index("|") :])
    print(f"{PAGE} is rendered anew")


if __name__ == "__main__":
    main()
