"""Render docs/benchmarks.md from the measurements of `make bench`, and print its tables."""

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
REPRODUCE = Path("results/bench/reproduce.json")
STACKING = Path("results/bench/stacking.json")
PEERS = Path("results/bench/peers.json")
PAGE = Path("docs/benchmarks.md")
WORKLOADS = ("W1", "W2", "W3", "W4")

FRAMEWORKS = {
    "bare": "bare loop",
    "sequential": "**fedrepro**, sequential",
    "vectorised": "**fedrepro**, vectorised",
    "fedrepro": "**fedrepro**",
    "flower": "Flower",
    "fluke": "fluke",
    "fedlab": "FedLab",
    "pfl": "pfl-research",
}

TEXT = """\
# Benchmarks

`make bench` and `make bench-peers` render this page from `results/bench/*.json`; do not edit it.

FedAvg trains each workload alternately with the engine and with a bare PyTorch loop, in the same
process. The bare loop has one `nn.Module`, one `torch.optim.SGD`, tensors in memory, the same steps
and one thread (`tests/benchmarks/loops.py`). Each figure is the median ratio of their steps per CPU
second: 1.00 is as fast as the bare loop, more is faster. The vectorised executor stacks clients and
compiles the stacked step; compilation happens once per run and is not counted. Neither side
evaluates or records. The engine uses channels-last layout for convolutional networks that gain from
it (W1, W4); the bare loop uses PyTorch's default layout.

{titles}

{ratios}

{details}

{machine}
{start}{peers}{precision}{stacking}{parallel}{shares}{store}{aggregation}"""

BESIDE_OTHERS = """
## Comparison with other simulators

The same measure, taken alternately in one call of `make bench-peers`. Each framework runs in its
own process with the same PyTorch and is used through its public interface
(`tests/benchmarks/peers`): FedAvg with the same model, tensors in memory and the same number of
steps, without tests or records. Flower simulates with one Ray actor; the CPU time of all of Ray's
processes counts, Ray's start in the second table only.

{ratios}

The second table compares a complete task, from the command to the accuracy after {rounds} rounds,
with each framework's own loading, testing after every round and logging: {task_title}. Data and
partition are the same for all; downloads and installation are not counted. Each framework samples
its own clients, which affects the accuracy.

{task}
{missing}
{machine}
"""

BFLOAT16 = """
## bfloat16 training

Settings with `precision: bfloat16` compute the products of convolutions and matrices with 8 bits
of precision. The rows "bfloat16" above use it, on a processor with{native} instructions for it.
{title}: the table shows test accuracy, the mean of the last {rounds} rounds.

{accuracies}

bfloat16 differs from float32 by {difference:+.2f} points over {count} seeds, 95 % interval ±
{half_width:.2f} (paired t), and takes {cpu:.2f} of its CPU time.

{machine}
"""

STACKED = """
## Which runs are vectorised

How many times as fast stacked clients are as sequential ones, in CPU time measured alternately on
W2, by the clients' momentum; compilation takes about {compiling:.0f} s more. `PAYS_FROM` in
`provenance/arithmetic.py` follows from these numbers. Steps like FedAvg's with momentum stay
sequential, because most of their gain is lost when another run uses the same caches.

{ratios}

{machine}
"""

WHERE = """
## Where a run spends its time

Shares of the CPU time of complete runs at scale paper, extrapolated from a few rounds on random
data of the real sizes (`tests/benchmarks/shares.py`): what happens in every round or evaluation
counts as often as in the complete run. "Evaluation" includes that of all clients at the end.
"Store" covers checkpoints, clients' states and the finished folder. "Start" covers the imports.

{shares}

{machine}

{reproduce}
"""

OF_REPRODUCE = """\
The jobs of the last `make reproduce` in this folder, as recorded by Snakemake. Several run at a
time.

{jobs}

The rounds of runs took {training:,.0f} s of CPU time, {share:.0%} of these {seconds:,.0f} s:
training and evaluation, without starts, data and records.\
"""

DEALT_OUT = """
## Two processes on one run

{ratios}

How many times as fast `parallel` rounds are as `sequential` ones in wall time, with two processes
on two cores: medians of runs measured alternately. Each client is trained by one process; "whole
clients" is the most that two cores can gain with that number of clients per round. "Two runs" is
what this machine's two cores gain over one core when each runs the same rounds separately, at the
same time.

{machine}
"""

DECISIONS = """
## Cost of one adaptive weighting

{decisions}

Each rule computes the mixing coefficients of one round from synthetic losses. CPU time is the
median of 15 such steps on one core; memory is the peak of one step, including the old and the new
state (`tests/benchmarks/test_aggregation.py`). AAggFF-D is linear in the number of clients.

{replay}

{machine}
"""


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio_table(measured: list[dict[str, Any]]) -> str:
    """One row per executor, one column per workload."""
    rows = []
    for executor in sorted({one["executor"] for one in measured}):
        own = {one["workload"]: one["ratio"] for one in measured if one["executor"] == executor}
        cells = [f"**{own[name]:.2f}**" if name in own else "" for name in WORKLOADS]
        rows.append([f"fedrepro, {executor}", *cells])
    return table(["", *WORKLOADS], rows)


def detail_table(measured: list[dict[str, Any]]) -> str:
    """The measurements behind the ratios."""
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
    """Machine, packages and date of the newest measurement."""
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
        f"\nFrom the command to the end of the first round, in a new process with prepared data "
        f"(`{start['command']}`): {start['seconds']:.1f} s of wall time and "
        f"{start['cpu_seconds']:.1f} s of CPU time, medians of {len(start['measurements'])} "
        f"(load {start['machine']['load']:.1f} on {start['machine']['cores']} cores).\n"
    )


def parallel_section() -> str:
    """The speed-up by several processes; "" if not measured."""
    if not PARALLEL.exists():
        return ""
    measured = json.loads(PARALLEL.read_text())
    rows = [
        [
            one["workload"],
            f"{one['ratio']:.2f}",
            f"{min(one['ratios']):.2f} to {max(one['ratios']):.2f}",
            f"{one['at_most']:.2f}",
            f"{one['two_at_once']:.2f}",
            f"{one['seconds_per_round']:.2g} s",
        ]
        for one in measured
    ]
    limits = ["whole clients", "two runs"]
    head = ["", "ratio", "lowest to highest", *limits, "one `sequential` round"]
    return DEALT_OUT.format(ratios=table(head, rows), machine=machine_line(measured))


def peers_section() -> str:
    """Other simulators on the same workloads, or a note that they were not measured."""
    if not PEERS.exists():
        return (
            "\n## Comparison with other simulators\n\nNot measured here: run `make bench-peers`.\n"
        )
    one = json.loads(PEERS.read_text())
    ratios = {(each["framework"], each["workload"]): each["ratio"] for each in one["rounds"]}

    def named(framework: str) -> str:
        return " ".join((FRAMEWORKS[framework], one["peers"].get(framework, ""))).strip()

    rows = []
    for framework in dict.fromkeys(each["framework"] for each in one["rounds"]):
        found = (ratios.get((framework, workload)) for workload in WORKLOADS)
        rows.append([named(framework), *(f"{ratio:.2f}" if ratio else "" for ratio in found)])
    task = [
        [
            named(each["framework"]),
            f"{each['seconds']:.0f} s",
            f"{each['cpu_seconds']:.0f} s",
            f"{each['accuracy']:.1%}",
        ]
        for each in one["task"]
    ]
    return BESIDE_OTHERS.format(
        ratios=table(["", *WORKLOADS], rows),
        rounds=one["task_rounds"],
        task_title=one["title"],
        task=table(["", "wall time", "CPU time", "accuracy"], task),
        missing="".join(f"\n{line}.\n" for line in one["missing"]),
        machine=machine_line([one]),
    )


def precision_section() -> str:
    """The effect of bfloat16 on accuracy; "" if not measured."""
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
    """The speed-up by stacking, by method and momentum; "" if not measured."""
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
    """The shares of whole runs' CPU time; "" if not measured."""
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
        shares=table(["run", *parts, "all", "rounds"], rows),
        machine=machine_line(measured),
        reproduce=reproduce_lines(),
    )


def reproduce_lines() -> str:
    """The shares of `make reproduce`'s time, or a note that it was not run."""
    one = json.loads(REPRODUCE.read_text()) if REPRODUCE.exists() else {}
    if not one.get("jobs") or not one["training"]:
        return "The shares of `make reproduce` are missing: it has not been run in this folder."
    seconds = sum(taken for _, taken in one["jobs"].values())
    by_time = sorted(one["jobs"].items(), key=lambda job: -job[1][1])
    rows = [
        [f"`{rule}`", str(count), f"{taken:,.0f} s", f"{taken / seconds:.1%}"]
        for rule, (count, taken) in by_time
    ]
    return OF_REPRODUCE.format(
        jobs=table(["rule", "jobs", "seconds", "share"], rows),
        seconds=seconds,
        training=one["training"],
        share=one["training"] / seconds,
    )


def store_section() -> str:
    """The cost of storing clients' personal models; "" if not measured."""
    if not STORE.exists():
        return ""
    (one,) = json.loads(STORE.read_text())
    return (
        "\n## Personal models of many clients\n\n"
        f"SuPerFed with {one['clients']:,} clients, each with its own model of "
        f"{one['parameters']:,} parameters, {one['bytes_of_states'] / 1e9:.1f} GB on disk, ten "
        "clients per round (`tests/benchmarks/client_states.py`): a run needs at most "
        f"{one['peak_memory_bytes'] / 1e9:.2f} GB of memory. A round takes "
        f"{one['seconds_per_round']:.1f} s, {one['share_of_the_store']:.0%} of it for reading and "
        "writing the models.\n"
    )


def aggregation_section() -> str:
    """The cost of AAggFF's two rules, by number of clients; "" if not measured."""
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
    head = ["rule", "clients", "per round", "CPU time", "memory"]
    return DECISIONS.format(
        decisions=table(head, rows), replay="\n".join(lines), machine=machine_line(measured)
    )


def main() -> None:
    if not ENGINE.exists():
        print(f"{ENGINE} is missing: run `make bench`. {PAGE} is unchanged")
        print(peers_section())
        return
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
        peers=peers_section(),
        precision=precision_section(),
        stacking=stacking_section(),
        parallel=parallel_section(),
        shares=shares_section(),
        store=store_section(),
        aggregation=aggregation_section(),
    )
    PAGE.write_text(page)
    print(page[page.index("|") :])
    print(f"rendered {PAGE}")


if __name__ == "__main__":
    main()
