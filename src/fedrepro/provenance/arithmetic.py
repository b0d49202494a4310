"""The class of arithmetic of a run: how its sums are formed, which decides the last bits.

Clients that run one after another or in several processes give the same bits: "per client". If the
clients of a round are stacked into one tensor, sums are formed in another order: "stacked". So do
several threads of PyTorch, a GPU and reduced precision. Training amplifies such differences:
FedAvg in superfed/mnist5k-demo ends at 67.00 % per client and 67.38 % stacked. The class is
therefore part of a run's identity, while processes and other ways of execution are not.

From :data:`TOGETHER_FROM` clients on, those that share a model are also "scored together": their
test samples pass through the network in common batches, which changes the last bits of recorded
losses and takes a hundredth of the time. Training is the same.

With executor `auto` the class follows from the run's specification alone, never from the machine
or its load.
"""

from collections.abc import Mapping
from typing import Any

from fedrepro.config.partition_sizes import cohort_size, estimated_shares
from fedrepro.config.run_spec import Execution, RunSpec
from fedrepro.config.settings import Setting
from fedrepro.data.catalogue.entries import DataSize
from fedrepro.engine.executor_facts import FACTS, PER_CLIENT, STACKED, first_with
from fedrepro.methods import facts as methods
from fedrepro.models import registry as models
from fedrepro.support.errors import bad_value

UNKNOWN = "unknown"
# "tf32, cuda" with TF32; "cuda" alone in older manifests: with PyTorch's defaults, which has
# convolutions use it.
CUDA, ANY_CUDA, TF32 = "cuda without TF32", "cuda", "tf32"
TOGETHER, TOGETHER_FROM = "scored together", 1000  # clients; no landed run has as many

# Client steps in a whole run from which stacking pays for compiling (about 20 s of CPU), by model
# family, device and kind of steps; measured, see docs/benchmarks.md and, for cuda, docs/cluster.md.
# (There 5,000 would do with one size of clients; each other size compiles anew.) Missing entries
# lose, or gain too little: convolutions on a CPU, and large plain steps with momentum, which a
# client that runs alone takes in one pass over its parameters.
PAYS_FROM = {
    ("linear", "cpu", "plain"): 300_000,
    ("linear", "cpu", "momentum"): 300_000,
    ("linear", "cpu", "own"): 300_000,
    ("linear", "cpu", "two models"): 300_000,
    ("mlp", "cpu", "plain"): 500_000,
    ("mlp", "cpu", "own"): 150_000,
    ("mlp", "cpu", "two models"): 25_000,
    **{
        (family, "cuda", kind): 20_000
        for family in ("linear", "mlp")
        for kind in ("plain", "momentum", "own", "two models")
    },
}


def of_spec(spec: RunSpec) -> str:
    """The class in which a run is computed as requested, in words."""
    execution = spec.execution
    if execution.executor == "auto":
        base = STACKED if pays(spec) else PER_CLIENT
    else:
        base = FACTS[execution.executor].arithmetic
    words = _in_words(base, spec.setting.precision, threads_of(execution), execution.device)
    return f"{words}, {TOGETHER}" if scores_together(spec.setting, spec.data_size) else words


def refuse_without_gpu(spec: RunSpec) -> None:
    """Raises UserError for a run that is to be trained in TF32, but not on a GPU."""
    setting, device = spec.setting, spec.execution.device
    if setting.precision == TF32 and not device.startswith("cuda"):
        wanted = f"float32 or bfloat16 with device {device}: TF32 needs device cuda"
        raise bad_value(f"setting {setting.name}", "precision", TF32, wanted)


def scores_together(setting: Setting, size: DataSize | None) -> bool:
    """True if clients that share a model are scored in common batches; not if sizes are unknown.

    Nor by a loss of the user's own, which may only have a value for a whole batch.
    """
    shares = estimated_shares(setting, size) if size else None
    if setting.loss:
        return False
    return setting.evaluate.clients and shares is not None and shares.clients >= TOGETHER_FROM


def of_manifest(manifest: Mapping[str, Any]) -> str:
    """The class of a finished run; :data:`UNKNOWN` if its manifest does not say how it was run."""
    stated, run = manifest.get("arithmetic"), manifest.get("run")
    if isinstance(stated, str):
        return stated
    # An older manifest: its executor is "sequential" for `parallel`, too.
    executor, threads, device = (manifest.get(key) for key in ("executor", "threads", "device"))
    if not isinstance(executor, str) or executor not in FACTS or not isinstance(run, Mapping):
        return UNKNOWN
    if not isinstance(threads, int) or device != "cpu":
        return UNKNOWN
    precision = run.get("precision", "float32")
    return _in_words(FACTS[executor].arithmetic, str(precision), threads, device)


def _in_words(base: str, precision: str, threads: int, device: str) -> str:
    gpu = ANY_CUDA if precision == TF32 else CUDA
    further = (
        precision if precision != "float32" else "",
        f"{threads} threads" if threads > 1 else "",
        gpu if device != "cpu" else "",
    )
    return ", ".join((base, *filter(None, further)))


def how_to_get(words: str) -> str:
    """The keys of config.yaml that request a class; "" if there are none."""
    base, *further = words.split(", ")
    executor = first_with(base)
    if executor is None or (ANY_CUDA in further and TF32 not in further):
        return ""
    keys = [f"executor: {executor}"]
    for each in further:
        if each.endswith(" threads"):
            keys.append(f"threads: {each.partition(' ')[0]}")
        elif each in (CUDA, ANY_CUDA):
            keys.append("device: cuda")
    return ", ".join(keys)


def threads_of(execution: Execution) -> int:
    """PyTorch's threads: one with `auto`, so that no bit depends on how many cores there are."""
    facts = FACTS.get(execution.executor)
    return execution.threads if facts and not facts.in_processes else 1


def pays(spec: RunSpec) -> bool:
    """True if stacking clients pays for compiling, by model, method and amount of data.

    With ``availability`` it does not: every other size of a cohort and number of steps would be
    compiled anew. A loss of the user's own may have no value for a single sample.
    """
    setting = spec.setting
    if setting.availability or setting.loss:
        return False
    family = models.find(setting.model, spec.plugins).family
    kind = methods.facts_of(spec.composition, spec.plugins).steps
    if kind == "plain" and setting.optimizer.momentum:
        kind = "momentum"
    threshold = PAYS_FROM.get((family, spec.execution.device.partition(":")[0], kind))
    return threshold is not None and client_steps(setting, spec.data_size) >= threshold


def client_steps(setting: Setting, size: DataSize | None) -> float:
    """Local steps of all clients over the whole run; 0 if the catalogue states no sizes.

    Not counted in prepared data: the workflow needs to know it before.
    """
    shares = estimated_shares(setting, size) if size else None
    if shares is None:
        return 0.0
    rounds = setting.rounds * cohort_size(setting, shares.clients)
    return rounds * setting.epochs * shares.steps / shares.clients
