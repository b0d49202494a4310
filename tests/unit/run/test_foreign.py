"""What others put into a run's folder while it stands still, or into its lock while it is at work.

Whatever it is, the same command ends with the bytes of a run that nobody touched, or says in one
line what is in its way. A new kind of damage or confusion is a line in ``THINGS``.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial as with_arguments
from pathlib import Path

import pytest

from fedrepro.config.run_spec import RunSpec
from fedrepro.run import checkpoint, runner
from fedrepro.run.results import FINISHED, partial_of
from fedrepro.support.locks import lock_of
from support.refusals import refused
from support.tiny_run import Stop, carry_out, run_spec, stop_after

METHOD = "aaggff_d+scaffold"  # decisions, and a state of every client


def spec(**changes: object) -> RunSpec:
    seed = changes.pop("seed", 1)
    return replace(run_spec(METHOD, rounds=8, save_models_at={METHOD: [3]}, **changes), seed=seed)


def stopped(folder: Path, what: RunSpec, after: int = 5) -> Path:
    """Where the holder of a stopped run's lock left its checkpoints; the last is of round 4."""
    with pytest.raises(Stop):
        carry_out(folder, what, stop_after(after))
    return holders(partial_of(folder))


def holders(partial: Path) -> Path:
    """The one folder of a holder of the lock in a run's folder of checkpoints."""
    (found,) = partial.glob(f"{checkpoint.HOLDER}*/")
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "seed1"
    carry_out(folder, spec())
    return folder


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of another seed: its checkpoints, and in ``finished`` its result."""
    folder = tmp_path_factory.mktemp("others")
    carry_out(folder / "finished", spec(seed=2))
    stopped(folder / "seed1", spec(seed=2)).rename(folder / "seed")
    stopped(folder / "seed1", spec(optimizer={"lr": 0.02})).rename(folder / "rate")
    return folder


def assert_same_files(one: Path, other: Path) -> None:
    names = {file.name for file in one.iterdir()} | {file.name for file in other.iterdir()}
    for name in sorted(names - {"timing.json"}):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


# --- things: (the last holder's folder of checkpoints, other runs) --------------------------------
Thing = Callable[[Path, Path], None]


def in_place_of(part: str, of: str, mine: Path, others: Path) -> None:
    """Another run's file or folder in place of the run's own."""
    target, source = mine / part, others / of / part
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)


def atomic_folder(of: str, mine: Path, others: Path) -> None:
    shutil.rmtree(mine)
    shutil.copytree(others / of, mine)


def clients_swapped(mine: Path, others: Path) -> None:
    first, second = sorted((mine / checkpoint.CLIENTS).iterdir())[:2]
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def kept_model_more(mine: Path, others: Path) -> None:
    file = next((others / "seed" / checkpoint.ROUND_FILES).iterdir())
    shutil.copyfile(file, mine / checkpoint.ROUND_FILES / "round7-client0.safetensors")


def strays(mine: Path, others: Path) -> None:
    for name in ("99.1.safetensors", "0.99.safetensors", ".0.1.safetensors.tmp", "notes.txt"):
        (mine / checkpoint.CLIENTS / name).write_bytes(b"not of this run")
    for name in (".checkpoint.safetensors.tmp", "checkpoint.safetensors.old"):
        (mine / name).write_bytes(b"not of this run")


def result_of_another(mine: Path, others: Path) -> None:
    shutil.copytree(others / "finished", mine / FINISHED)


def result_beside_holders(mine: Path, others: Path) -> None:
    """Where versions before holders staged a result, and one is looked for."""
    shutil.copytree(others / "finished", mine.parent / FINISHED)


def no_holder(mine: Path, others: Path) -> None:
    """The run's own checkpoints, right in its folder, as versions before holders left them."""
    for file in list(mine.iterdir()):
        file.rename(mine.parent / file.name)
    mine.rmdir()


def holder_more(mine: Path, others: Path) -> None:
    """Another run's folder, of a holder too, and a file in place of one that was renamed."""
    shutil.copytree(others / "seed", mine.with_name(f"{checkpoint.HOLDER}0123456789ab"))
    mine.with_name(f"{checkpoint.HOLDER}ba9876543210").touch()


def half_a_result(mine: Path, others: Path) -> None:
    (mine / FINISHED).mkdir()
    shutil.copy(others / "finished" / "manifest.json", mine / FINISHED)


def other_layout(mine: Path, others: Path) -> None:
    """A checkpoint that an earlier version left, of another layout."""
    folder = mine.parent.with_name("seed1")
    shutil.rmtree(mine.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "LAYOUT", checkpoint.LAYOUT - 1)
        stopped(folder, spec())


THINGS: dict[str, Thing] = {
    "nothing": lambda mine, others: None,
    "another seed's folder": with_arguments(atomic_folder, "seed"),
    "another rate's folder": with_arguments(atomic_folder, "rate"),
    "another seed's checkpoint": with_arguments(in_place_of, checkpoint.CHECKPOINT, "seed"),
    "another rate's checkpoint": with_arguments(in_place_of, checkpoint.CHECKPOINT, "rate"),
    "another seed's client states": with_arguments(in_place_of, checkpoint.CLIENTS, "seed"),
    "another seed's kept models": with_arguments(in_place_of, checkpoint.ROUND_FILES, "seed"),
    "a kept model more": kept_model_more,
    "no kept models": lambda mine, others: shutil.rmtree(mine / checkpoint.ROUND_FILES),
    "no client states": lambda mine, others: shutil.rmtree(mine / checkpoint.CLIENTS),
    "no checkpoint": lambda mine, others: (mine / checkpoint.CHECKPOINT).unlink(),
    "stray files": strays,
    "another seed's result": result_of_another,
    "half of another's result": half_a_result,
    "another seed's result beside holders": result_beside_holders,
    "checkpoints without a holder": no_holder,
    "another seed's holder more": holder_more,
    "a checkpoint of another layout": other_layout,
}


@pytest.mark.parametrize("name", [*THINGS, "two client states swapped"])
def test_what_others_put_there_costs_time_only(
    tmp_path: Path, whole: Path, others: Path, name: str
) -> None:
    folder = tmp_path / "seed1"
    mine = stopped(folder, spec())
    (THINGS | {"two client states swapped": clients_swapped})[name](mine, others)
    rounds: list[int] = []
    carry_out(folder, spec(), lambda progress: rounds.append(progress.round))
    assert_same_files(folder, whole)
    left = {"seed1.partial"} if THINGS.get(name) == no_holder else set()  # nobody's: it stays
    # What does not fit the run is moved aside, and never removed.
    present = {file.name for file in tmp_path.iterdir() if ".aside-" not in file.name}
    assert present == {"seed1"} | left
    assert rounds[-1] == 8 and rounds[0] in (1, 5)
    if name in ("nothing", "stray files"):
        assert rounds[0] == 5


# --- the lock, taken over while the run is at work ------------------------------------------------
def replaced(lock: Path) -> None:
    """Another process found it silent, and made its own."""
    lock.unlink()
    lock.write_text("elsewhere\t17\tanother machine\t1\n")


@pytest.mark.parametrize("take", [replaced, Path.unlink], ids=["replaced", "removed"])
@pytest.mark.parametrize("at", [1, 4, 8])
def test_who_lost_the_lock_writes_no_more(
    tmp_path: Path, whole: Path, at: int, take: Callable[[Path], None]
) -> None:
    """Not at the next checkpoint, nor at the end; the other's lock stays, and the run goes on.

    But for files of single rounds and a staged result, in its own folder, which nobody relies on.
    """
    folder = tmp_path / "seed1"
    mine, lock = partial_of(folder), lock_of(partial_of(folder))
    before: dict[Path, bytes] = {}

    def report(progress: runner.Progress) -> None:
        if progress.round == at:
            take(lock)
            before.update({file: file.read_bytes() for file in mine.rglob("*.safetensors")})

    with refused(names=("lost", "lock")) as caught:
        carry_out(folder, spec(), report)
    assert "\n" not in str(caught.value)
    assert not folder.exists()
    after = {file: file.read_bytes() for file in mine.rglob("*.safetensors")}
    own = (checkpoint.ROUND_FILES, FINISHED)
    assert {f: c for f, c in after.items() if f.parent.name not in own} == {
        f: c for f, c in before.items() if f.parent.name not in own
    }
    assert all(f.parent.parent.name.startswith(checkpoint.HOLDER) for f in after.keys() - before)
    assert lock.exists() == (take is replaced)
    lock.unlink(missing_ok=True)
    carry_out(folder, spec())
    assert_same_files(folder, whole)
