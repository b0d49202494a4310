"""What goes wrong: each does it to a world, gets it back as the documentation says, and says how.

An injection returns what was done and how much work was lost, or raises AssertionError where
something was not noticed or did not come back.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow.parquet

from chaos.world import CONFIG, EXPERIMENT, LANDED, PAPER, TABLES, WITH, World, edit_code
from fedrepro.support.terminal import ASKED_TO_END
from support.project import Project

DAY = 86400


@dataclass(frozen=True)
class Survived:
    """An injection after which everything was as before.

    Attributes:
        what: was done.
        lost: seconds of work that were in no checkpoint.
    """

    what: str
    lost: float = 0.0


class Skipped(Exception):
    """What this machine does not let us do, with the reason."""


Injection = Callable[[World, Random], Survived]


def damage(path: Path, random: Random) -> str:
    """Truncate a file or flip one of its bits, and leave its times as they were."""
    times, content = path.stat(), bytearray(path.read_bytes())
    place = random.randrange(len(content))
    if random.random() < 0.5:
        what, content = f"truncated to {place} bytes", content[:place]
    else:
        content[place] ^= 1 << random.randrange(8)
        what = f"byte {place} of {len(content)} changed"
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return what


def _recovered(world: World, what: str) -> Survived:
    """Everything is made again as it was."""
    wrong = world.recovered()
    assert not wrong, f"{what}: {wrong}"
    return Survived(what)


def _damaged(world: World, random: Random, pattern: str) -> Survived:
    """Damage a file; verify must name it; what it names is removed; the command does the rest."""
    path = random.choice(sorted(world.root.glob(pattern)))
    what = f"{path.relative_to(world.root)} {damage(path, random)}"
    faults = world.faults()
    assert faults, f"{what}: not noticed"
    world.unmake(random)  # so that what was damaged is needed
    world.remove(faults)
    return _recovered(world, what)


def result(world: World, random: Random) -> Survived:
    """Of a finished run. Before it is removed, no table takes numbers from it."""
    run = random.choice(world.runs)
    path = random.choice([path for path in sorted(run.iterdir()) if path.name != "timing.json"])
    what = f"{path.relative_to(world.root)} {damage(path, random)}"
    before = {table: (world.root / table).read_bytes() for table in TABLES}
    for table in TABLES:
        _, _, _, system, item = Path(table).with_suffix("").parts
        called = world.project.fedrepro("table", system, item, "--scale", "demo", **WITH)
        assert "Traceback" not in called.stdout, f"{what}: {called.stdout}"
        now = (world.root / table).read_bytes()
        assert called.returncode or now == before[table] or b"damaged" in now, f"{what}: used"
    faults = world.faults()
    assert faults, f"{what}: not noticed"
    world.remove(faults)
    for table in TABLES:
        (world.root / table).unlink()
    return _recovered(world, what)


def partition(world: World, random: Random) -> Survived:
    return _damaged(world, random, "results/partitions/*/*/seed*")


def prepared_array(world: World, random: Random) -> Survived:
    return _damaged(world, random, "results/data/*/*.npy")


def kept_checkpoint(world: World, random: Random) -> Survived:
    return _damaged(world, random, "results/trunks/*/*/*/*/*/*.safetensors")


def unnoticed_array(world: World, random: Random) -> Survived:
    """Nobody has called verify: what would train on a damaged array must not."""
    path = random.choice(sorted(world.root.glob("results/data/*/train_x.npy")))
    times, content = path.stat(), bytearray(path.read_bytes())
    content[-1 - random.randrange(10**6)] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    world.unmake(random)
    called = world.command()
    assert called.returncode and "damaged" in called.stdout, called.stdout
    assert "Traceback" not in called.stdout, called.stdout
    world.remove(world.faults())
    wrong = world.recovered()
    assert not wrong, wrong
    return Survived("a bit of train_x.npy changed before runs were made")


def data_facts(world: World, random: Random) -> Survived:
    return _damaged(world, random, "results/data/*/meta.json")


def timing(world: World, random: Random) -> Survived:
    """What a run took. Snakemake does not miss it, so the whole run is removed.

    Of a run with a row in a table: one that only a finished run was made from is not made again.
    """
    path = random.choice([run for run in world.runs if "/plain/" in str(run)]) / "timing.json"
    what = f"{path.relative_to(world.root)} {damage(path, random)}"
    assert world.faults(), f"{what}: not noticed"
    shutil.rmtree(path.parent)
    for table in TABLES:
        (world.root / table).unlink()
    return _recovered(world, what)


def table(world: World, random: Random) -> Survived:
    """A digit of a table. It is on no page until the table is made again."""
    path = world.root / random.choice(TABLES)
    what = f"{path.relative_to(world.root)} {other_digit(path, random)}"
    called = world.project.fedrepro("page", "ima", path.stem, "--scale", "demo", **WITH)
    assert called.returncode == 2 and "damaged" in called.stdout, f"{what}: {called.stdout}"
    faults = world.faults()
    assert faults, f"{what}: not noticed"
    world.remove(faults)
    return _recovered(world, what)


def other_digit(path: Path, random: Random) -> str:
    """Change one digit of a JSON file, and leave its times as they were."""
    times, content = path.stat(), bytearray(path.read_bytes())
    place = random.choice([at for at, byte in enumerate(content) if chr(byte).isdigit()])
    content[place] = ord("1") if content[place] != ord("1") else ord("2")
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return f"digit {place} of {len(content)} changed"


def swapped_result(world: World, random: Random) -> Survived:
    """A run's folder with another run's files, which are all whole."""
    one, other = random.sample([run for run in world.runs if "/plain/" in str(run)], 2)
    before = {table: (world.root / table).read_bytes() for table in TABLES}
    shutil.rmtree(one)
    shutil.copytree(other, one)
    what = f"{one.relative_to(world.root)} has the files of {other.relative_to(world.root)}"
    for path in TABLES:
        called = world.project.fedrepro("table", "ima", Path(path).stem, "--scale", "demo", **WITH)
        now = (world.root / path).read_bytes()
        assert called.returncode == 0, called.stdout
        assert now == before[path] or b"another run" in now, f"{what}: used"
    faults = world.faults()
    assert faults, f"{what}: not noticed"
    for path in TABLES:
        (world.root / path).unlink()
    return _recovered(world, what)  # nobody has removed what verify names


def swapped_partition(world: World, random: Random) -> Survived:
    """A partition over another one, and what is made of it is to be made."""
    paths = sorted(world.root.glob("results/partitions/*/*/seed*.npz"))
    one, other = random.sample(paths, 2)
    for suffix in (".json", ".npz"):
        times = one.with_suffix(suffix).stat()
        shutil.copyfile(other.with_suffix(suffix), one.with_suffix(suffix))
        os.utime(one.with_suffix(suffix), ns=(times.st_atime_ns, times.st_mtime_ns))
    what = f"{one.relative_to(world.root)} is {other.relative_to(world.root)}"
    faults = world.faults()
    assert faults, f"{what}: not noticed"
    world.remove(faults)
    world.unmake(random)
    return _recovered(world, what)


def unsealed(world: World, random: Random) -> Survived:
    """A manifest without its seal, beside another run's rounds."""
    one, other = random.sample([run for run in world.runs if "/plain/" in str(run)], 2)
    manifest = json.loads((one / "manifest.json").read_text(encoding="utf-8"))
    del manifest["seal"]
    manifest["files"] = {}
    (one / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    shutil.copyfile(other / "rounds.parquet", one / "rounds.parquet")
    assert world.faults(), "not noticed"
    wrong = world.recovered()
    assert not wrong, wrong
    return Survived(f"{one.relative_to(world.root)} without a seal")


def forgotten(world: World, random: Random) -> Survived:
    """Snakemake's records gone and the configuration changed; then all of it once more, back."""
    file, before = world.project.experiment, world.project.experiment.read_bytes()
    rate = random.choice([0.04, 0.06, 0.07])
    try:
        file.write_bytes(before.replace(b"lr: 0.05", f"lr: {rate}".encode()))
        shutil.rmtree(world.root / ".snakemake")
        called = world.command()
        assert called.returncode == 0, called.stdout
        assert "made with another configuration: optimizer" in called.stdout, called.stdout
        for run in world.runs:
            described = json.loads((run / "manifest.json").read_text(encoding="utf-8"))["run"]
            assert described["optimizer"]["lr"] != 0.05, f"{run}: the old configuration"
        assert world.lasting() != world.whole
    finally:
        file.write_bytes(before)
        shutil.rmtree(world.root / ".snakemake", ignore_errors=True)
    wrong = world.recovered()
    assert not wrong, wrong
    return Survived(f"no records, and a learning rate of {rate}")


@contextmanager
def _working(world: World, random: Random) -> Iterator["subprocess.Popen[bytes]"]:
    """Snakemake at work on some runs, at a random moment."""
    world.unmake(random)
    process = world.begin()
    try:
        assert world.await_work(process)
        time.sleep(random.uniform(0, 4))
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill_run(world: World, random: Random) -> Survived:
    """One run; Snakemake makes the rest and says which failed."""
    with _working(world, random) as process:
        while process.poll() is None and not list(world.workers()):
            time.sleep(0.02)
        lost = world.lost()
        workers = sorted(world.workers())
        if workers:
            partial, pid = random.choice(workers)
            os.kill(pid, signal.SIGKILL)
        process.wait()
    wrong = world.recovered()
    assert not wrong, wrong
    return Survived(f"{partial.parent.name} killed" if workers else "all had ended", lost)


def kill_snakemake(world: World, random: Random) -> Survived:
    """Snakemake alone. Its runs go on; the next call, at once or later, takes what they leave."""
    with _working(world, random) as process:
        process.kill()
        process.wait()
        under_way = [partial.with_suffix("") for partial, _ in world.workers()]
        waited = random.choice([0, 1, 60])
        end = time.monotonic() + waited
        while time.monotonic() < end and next(world.workers(), None):
            time.sleep(0.02)
        made = {run: _made(run) for run in under_way}
        wrong = world.recovered()
    assert not wrong, wrong
    again = [run for run in under_way if made[run] not in (None, _made(run))]
    assert not again, f"trained once more: {again}"
    ended = sum(each is not None for each in made.values())
    return Survived(f"Snakemake killed; {ended} of its {len(made)} runs ended before the next call")


def _made(run: Path) -> bytes | None:
    """What differs between two times that the same run was made."""
    try:
        return (run / "timing.json").read_bytes()
    except OSError:
        return None


def power(world: World, random: Random) -> Survived:
    """Everything at once."""
    with _working(world, random) as process:
        lost = world.lost()
        world.pull_the_plug(process)
    wrong = world.recovered()
    assert not wrong, wrong
    return Survived("everything killed", lost)


def checkpoint(world: World, random: Random) -> Survived:
    """Everything killed, and a file of the last checkpoint damaged."""
    world.unmake(random)
    process = world.begin()
    pattern = "results/runs/*/*/*/seed*.partial/**/*.safetensors"
    while process.poll() is None and not any(world.root.glob(pattern)):
        time.sleep(0.02)
    time.sleep(random.uniform(0, 1))
    lost = world.lost()
    world.pull_the_plug(process)
    paths = [path for path in sorted(world.root.glob(pattern)) if not path.name.startswith(".")]
    what = "all had ended"
    if paths:
        path = random.choice(paths)
        what = f"{path.relative_to(world.root)} {damage(path, random)}"
    wrong = world.recovered()
    assert not wrong, f"{what}: {wrong}"
    return Survived(what, lost)


def _mount(*arguments: str) -> None:
    called = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if called.returncode:
        raise Skipped(f"mount {' '.join(arguments)}: {called.stderr.strip()}")


def _need_root() -> None:
    if os.geteuid():
        raise Skipped("mounting takes root")


def full_disk(world: World, random: Random) -> Survived:
    """The folder of runs on a file system that fills up."""
    _need_root()
    world.unmake(random)
    folder, aside = world.root / "results/runs", world.root / "aside"
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(folder, aside)
    used = sum(path.stat().st_blocks // 2 + 4 for path in aside.rglob("*"))
    room = random.randint(40, 2000)
    _mount("-t", "tmpfs", "-o", f"size={used + room}k", "tmpfs", str(folder))
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True)
        called = world.command()
        assert called.returncode, called.stdout
        assert "No space left" in called.stdout, called.stdout
        assert "Traceback" not in called.stdout, called.stdout
        _mount("-t", "tmpfs", "-o", f"remount,size={used + 10**6}k", "tmpfs", str(folder))
        wrong = world.recovered()
        assert not wrong, wrong
        shutil.rmtree(aside)
        shutil.copytree(folder, aside)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
    shutil.copytree(aside, folder, dirs_exist_ok=True)
    shutil.rmtree(aside)
    return Survived(f"{room} KB left")


def read_only(world: World, random: Random) -> Survived:
    """A folder that the system mounts for reading only, as after an error of the disk."""
    _need_root()
    world.unmake(random)
    folder = world.root / random.choice(["results/runs", "results/tables", "results"])
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,bind,ro", str(folder))
        called = world.command()
        assert called.returncode, called.stdout
        # Snakemake itself may end in a traceback, where it makes folders.
        assert "/src/fedrepro/" not in called.stdout, called.stdout
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
    wrong = world.recovered()
    assert not wrong, wrong
    return Survived(f"{folder.relative_to(world.root)} read-only")


def clock(world: World, random: Random) -> Survived:
    """Half of all files are from tomorrow; then nothing is left to do."""
    chosen = world.unmake(random)
    later = time.time() + DAY
    for path in sorted((world.root / "results").rglob("*")):
        if random.random() < 0.5:
            os.utime(path, (later, later))
    wrong = world.recovered()
    assert not wrong, wrong
    again = world.command()
    assert "Nothing to be done" in again.stdout, again.stdout
    return Survived(f"half of all files from tomorrow, {len(chosen)} runs to make")


def code_edited(world: World, random: Random) -> Survived:
    """While Snakemake is at work or starts; then it ends, is interrupted or killed.

    The same command must then make what the edited code makes from nothing.
    """
    from_nothing = world.root.with_name("edited")
    if not from_nothing.exists():
        edit_code(Project.make(from_nothing, CONFIG, EXPERIMENT))
    expected = World(from_nothing).whole
    copy = world.copy("code-edited")
    copy.unmake(random)
    process = copy.begin()
    try:
        time.sleep(random.uniform(0, 10))
        edit_code(copy.project)
        how = random.choice(["left to end", "interrupted", "killed"])
        if how == "interrupted":
            os.killpg(process.pid, signal.SIGINT)
        elif how == "killed":  # its runs go on
            process.kill()
        process.wait()
        wrong = copy.recovered(expected)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert not wrong, f"{how}: {wrong}"
    shutil.rmtree(copy.root)
    return Survived(f"code edited, Snakemake {how}")


NOTE = "three years of work"
# Of someone's own, beside what we write: %s is a name of ours.
BESIDE = (
    "%s.old/note",
    ".%s.old/note",
    "%s.partial/note",
    "%s.partial/finished/note",
    "%s.tmp/note",
)


@contextmanager
def _own_files(world: World, paths: Iterable[Path]) -> Iterator[None]:
    """Someone's own files are there; at the end every one is as it was, and is removed."""
    placed = list(dict.fromkeys(paths))
    for path in placed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(NOTE, encoding="utf-8")
    try:
        yield
        lost = [path for path in placed if not path.is_file() or path.read_text() != NOTE]
        assert not lost, f"lost: {lost}"
    finally:
        for path in placed:
            path.unlink(missing_ok=True)
        folders = {folder for path in placed for folder in path.parents}
        for folder in sorted(folders, reverse=True):
            with suppress(OSError):
                if folder.is_relative_to(world.root / "results"):
                    folder.rmdir()


def own_files(world: World, random: Random) -> Survived:
    """Among all that is there, and beside what is made anew, also after a kill."""
    killed = random.random() < 0.5
    everything = [path for path in sorted((world.root / "results").rglob("*")) if path.is_dir()]
    runs, chosen = world.runs, world.unmake(random)
    data = sorted((world.root / "results/data").glob("[!.]*"))
    kept = sorted((world.root / "results/trunks").glob("*/*/*/*/*"))
    beside = [
        folder.parent / (name % folder.name)
        for folder in (*runs, *data, *kept)
        for name in BESIDE
        if random.random() < 0.7
    ]
    inside = [folder / "own/note" for folder in everything if folder.exists()]
    inside += [folder / "note" for folder in everything if folder.exists()]
    with _own_files(world, [*beside, *inside]):
        if killed:
            process = world.begin()
            assert world.await_work(process)
            time.sleep(random.uniform(0, 4))
            world.pull_the_plug(process)
        wrong = world.recovered()
        assert not wrong, wrong
    return Survived(
        f"{len(beside) + len(inside)} own files, {len(chosen)} runs made{' after a kill' * killed}"
    )


def own_files_in_a_stale_run(world: World, random: Random) -> Survived:
    """`fedrepro run` and Snakemake's rule replace the run around them."""
    file, before = world.project.experiment, world.project.experiment.read_bytes()
    run = random.choice([run for run in world.runs if "/plain/fedavg/" in str(run)])
    by_hand = random.random() < 0.5
    try:
        places = ("seed1/note", "seed1/plots/note", "seed1.old/note", "seed1.partial/note")
        with _own_files(world, [run.parent / place for place in places]):
            file.write_bytes(before.replace(b"lr: 0.05", b"lr: 0.06"))
            if by_hand:
                arguments = ("run", "ima/plain", "fedavg", "--seed", "1")
                called = world.project.fedrepro(*arguments, **WITH)
            else:
                called = world.command()
            assert called.returncode == 0, called.stdout
            described = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
            assert described["run"]["optimizer"]["lr"] == 0.06
    finally:
        file.write_bytes(before)
    wrong = world.recovered()
    assert not wrong, wrong
    return Survived(f"own files in a stale run, made {'by hand' if by_hand else 'by Snakemake'}")


def told_to_end(world: World, random: Random) -> Survived:
    """A signal to the whole process group: a terminal's, `timeout`'s, a cluster's.

    Every run under way then saves its round.
    """
    number = random.choice(ASKED_TO_END)
    with _working(world, random) as process:
        under_way = [partial for partial, _ in world.workers()]
        os.killpg(process.pid, number)
        while next(world.workers(), None):
            time.sleep(0.02)
        process.wait()
        for partial in under_way:
            made = partial.with_suffix("") / "manifest.json"
            saved = made.exists() or any(partial.rglob("checkpoint.safetensors"))
            assert saved, f"{number.name}: {partial}: nothing is saved"
    wrong = world.recovered()
    assert not wrong, wrong
    return Survived(f"{number.name} to the process group, {len(under_way)} runs under way")


def reader_gone(world: World, random: Random) -> Survived:
    """Who reads what Snakemake and its runs print goes away after some lines."""
    world.unmake(random)
    lines = random.randint(1, 20)
    reader, writer = os.pipe()
    process = world.begin(writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as output:
        for _ in range(lines):
            output.readline()
    assert process.wait() == 0, f"status {process.returncode} after {lines} lines"
    wrong = world.recovered()
    assert not wrong, wrong
    return Survived(f"nobody reads after {lines} lines")


ENDS = """
import os
from dataclasses import dataclass
from fedrepro.methods.fedavg import FedAvg

HERE = os.getpid()


@dataclass(frozen=True)
class Ends(FedAvg):
    def client_update(self, ctx, message, client_state, steps):
        if os.getpid() != HERE:
            {end}
        return super().client_update(ctx, message, client_state, steps)
"""


def worker_ends(world: World, random: Random) -> Survived:
    """A process that trains clients ends before it is done, in some way."""
    end = random.choice(
        ["os._exit(0)", "os._exit(7)", "raise SystemExit(0)", "os.kill(os.getpid(), 9)"]
    )
    folder, config = world.root / "ends", world.root / "config/config.yaml"
    before = config.read_bytes()
    try:
        folder.mkdir(exist_ok=True)
        (folder / "ends.py").write_text(ENDS.format(end=end), encoding="utf-8")
        config.write_bytes(before + b"threads: 2\n")
        words = ("ima/plain", "ends", "--seed", "1", "--executor", "parallel")
        called = world.project.fedrepro("run", *words, FEDREPRO_METHODS=str(folder))
        assert called.returncode == 2, f"{end}: status {called.returncode}: {called.stdout}"
        assert "client " in called.stdout and "in round " in called.stdout, called.stdout
        assert not (world.root / "results/runs/ima/plain/ends/seed1").exists(), end
    finally:
        config.write_bytes(before)
        for left in (folder, world.root / "results/runs/ima/plain/ends"):
            shutil.rmtree(left, ignore_errors=True)
    wrong = world.recovered()
    assert not wrong, wrong
    return Survived(f"{end} in a worker process")


def printed_row(world: World, random: Random) -> Survived:
    """A row of printed numbers is changed, dropped or there twice; each is named by its keys."""
    path = world.root / PAPER / "cells.csv"
    before = path.read_bytes()
    lines = before.decode().splitlines(keepends=True)
    chosen = random.randrange(1, len(lines))
    how = random.choice(["changed", "dropped", "doubled"])
    if how == "changed":
        digits = [at for at, letter in enumerate(lines[chosen]) if letter.isdigit()]
        at = random.choice(digits)
        other = str((int(lines[chosen][at]) + 1) % 10)
        lines[chosen] = lines[chosen][:at] + other + lines[chosen][at + 1 :]
    elif how == "dropped":
        del lines[chosen]
    else:
        lines.insert(random.randrange(chosen, len(lines) + 1), lines[chosen])
    path.write_bytes("".join(lines).encode())
    faults = world.faults()
    what = f"row {chosen} of cells.csv {how}"
    # A key that was changed is that of another row: one is gone, and one has come.
    assert 1 <= len(faults) <= 2, f"{what}: {faults}"
    assert all(fault.startswith(f"{PAPER}/cells.csv: ") for fault in faults), faults
    path.write_bytes(before)
    assert world.faults() == []
    return Survived(what)


def landed_runs(world: World, random: Random) -> Survived:
    """A landed run is dropped, its file, or a file beside it."""
    folder = world.root / LANDED
    before = {path: path.read_bytes() for path in folder.iterdir()}
    how = random.choice(["dropped", "deleted", "truncated"])
    path = random.choice(sorted(before)) if how == "truncated" else folder / "runs.parquet"
    if how == "dropped":
        table = pyarrow.parquet.read_table(path)
        dropped = random.randrange(table.num_rows)
        left = [row for row in range(table.num_rows) if row != dropped]
        pyarrow.parquet.write_table(table.take(left), path)
    elif how == "deleted":
        path.unlink()
    else:  # not any bit: some are of statistics that nobody reads
        path.write_bytes(before[path][: random.randrange(len(before[path]))])
    faults = world.faults()
    what = f"{path.relative_to(world.root)} {how}"
    assert faults, f"{what}: not noticed"
    assert all(fault.startswith(str(LANDED)) for fault in faults), faults
    for file, content in before.items():
        file.write_bytes(content)
    assert world.faults() == []
    return Survived(what)


INJECTIONS: dict[str, Injection] = {
    each.__name__: each
    for each in (
        result, partition, prepared_array, unnoticed_array, kept_checkpoint, data_facts, timing,
        table, swapped_result, swapped_partition, unsealed, forgotten, kill_run, kill_snakemake,
        power, checkpoint, code_edited, full_disk, read_only, clock, told_to_end, reader_gone,
        worker_ends, own_files, own_files_in_a_stale_run, printed_row, landed_runs,
    )
}  # fmt: skip
