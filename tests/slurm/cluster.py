"""A SLURM of one node on loopback: a real slurmctld and slurmd, without accounting.

Needs root and Debian's slurm-wlm and munge (``scripts/slurm`` installs them). The configuration has
to be /etc/slurm/slurm.conf, because a job step takes no other; one that is there already is never
touched. Two partitions, ``cpu`` and ``gpu``, the latter with two pretend GPUs.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "sinfo", "scancel")
CONFIGURATION = Path("/etc/slurm")
MARK = "# made by fedrepro's tests\n"
CORES = 4

SLURM_CONF = """\
ClusterName=fedrepro
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
StateSaveLocation={state}/controller
SlurmdSpoolDir={state}/node
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd.pid
SlurmctldLogFile={state}/slurmctld.log
SlurmdLogFile={state}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
KillWait=5
JobRequeue=0
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory} Gres=gpu:2 State=UNKNOWN
PartitionName=cpu Nodes={host} Default=YES MaxTime=INFINITE DefMemPerCPU=500 State=UP
PartitionName=gpu Nodes={host} MaxTime=INFINITE DefMemPerCPU=500 State=UP
"""


def why_not() -> str | None:
    """Why there can be no such cluster here, or None."""
    if os.geteuid() != 0:
        return "starting SLURM's daemons takes root"
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: apt-get install slurm-wlm munge)"
    conf = CONFIGURATION / "slurm.conf"
    if conf.exists() and not conf.read_text(encoding="utf-8").startswith(MARK):
        return f"{conf} belongs to a cluster"
    return None


@contextmanager
def running(state: Path) -> Iterator[None]:
    """Start the daemons with their files in ``state``; stop exactly these, by process id."""
    host = subprocess.check_output(["hostname", "-s"], text=True).strip()
    _configure(state, host)
    pids = [state / "munge/munged.pid", state / "slurmctld.pid", state / "slurmd.pid"]
    try:
        for command in (
            ["munged", f"--key-file={state}/munge/munge.key", f"--pid-file={pids[0]}",
             f"--log-file={state}/munged.log", f"--seed-file={state}/munge/seed"],
            ["slurmctld", "-i"],
            ["slurmd"],
        ):  # fmt: skip
            subprocess.run(command, check=True, timeout=60)
        _await(lambda: _output("sinfo", "-h", "-o", "%T", "-p", "cpu") == "idle", "an idle node")
        yield
    finally:
        subprocess.run(["scancel", "--full", "-u", "root"], check=False, timeout=60)
        for path in reversed(pids):
            _stop(path)
        for name in ("slurm.conf", "gres.conf"):
            (CONFIGURATION / name).unlink(missing_ok=True)


@dataclass(frozen=True)
class Job:
    """What the controller remembers of a job.

    Attributes:
        number: with "_" and its place, of an array's.
        comment: what Snakemake says of it: its rule and wildcards.
    """

    number: str
    state: str
    name: str
    comment: str


def jobs(root: Path, states: str = "all") -> list[Job]:
    """The jobs of the project in ``root``; other tests have theirs at the same time."""
    lines = _output("squeue", "-h", "-t", states, "-o", "%Z|%i|%T|%j|%k").splitlines()
    found = (line.split("|", 4) for line in lines)
    return [Job(*rest) for folder, *rest in found if folder == str(root)]


def asked(job: Job) -> dict[str, str]:
    """What a job asked for, as ``scontrol`` tells it: Partition, MinMemoryNode, TimeLimit, ..."""
    text = _output("scontrol", "show", "job", job.number, "--oneliner")
    return dict(pair.split("=", 1) for pair in text.split() if "=" in pair)


def _configure(state: Path, host: str) -> None:
    for name in ("controller", "node", "munge", "devices"):
        (state / name).mkdir(parents=True, exist_ok=True)
    # munge and slurmd want every folder above theirs to be root's and not writable by others.
    for folder in (state, state / "munge"):
        folder.chmod(0o755)
    Path("/run/munge").mkdir(mode=0o755, exist_ok=True)
    key = state / "munge/munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    for number in range(2):
        device = state / f"devices/gpu{number}"
        if not device.exists():
            os.mknod(device, 0o666 | 0o020000, os.makedev(1, 3))  # a twin of /dev/null
    with Path("/proc/meminfo").open(encoding="utf-8") as file:
        kilobytes = int(file.readline().split()[1])
    CONFIGURATION.mkdir(exist_ok=True)
    text = SLURM_CONF.format(
        host=host, state=state, cores=CORES, memory=int(kilobytes / 1024 * 0.9)
    )
    (CONFIGURATION / "slurm.conf").write_text(MARK + text, encoding="utf-8")
    gres = f"AutoDetect=off\nName=gpu File={state}/devices/gpu[0-1]\n"
    (CONFIGURATION / "gres.conf").write_text(MARK + gres, encoding="utf-8")


def _output(*command: str) -> str:
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=False, timeout=60
    ).stdout.strip()


def _await(true: "object", what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError(f"no {what} within {seconds} s")
        time.sleep(0.1)


def _stop(pid_file: Path) -> None:
    try:
        pid = int(pid_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    try:
        os.kill(pid, 15)
        for _ in range(100):
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
            if status.rpartition(")")[2].split()[0] == "Z":
                return
            time.sleep(0.1)
    except (OSError, IndexError):
        return  # gone
