"""All that reads or changes private parts of Snakemake (9.27) and of its plug-in for SLURM (2.8).

The rules call four functions: :func:`on_load`, :func:`call_first`, :func:`on_start` and
:func:`on_error`. The rest of the package asks for records of how files were made and forces
outputs. Each part says why it is needed; ``tests/unit/workflow/test_snakemake_patches.py`` fails
when Snakemake no longer does what a part changes, so that it can go.
"""

import ast
import atexit
import getpass
import logging
import math
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import IO, Any, cast

from fedrepro.run.results import FINISHED, partial_of
from fedrepro.support.errors import UserError, bad_argument, exit_on_user_error, refusal, writing
from fedrepro.support.files import all_below, expect_folder, read_json
from fedrepro.support.locks import exclusive_lock
from fedrepro.support.terminal import Unfailing, let_go, say

IMAGE = "fedrepro.sif"  # in which jobs run with `--sdm apptainer`


def on_load(workflow: Any) -> None:
    """Prepare Snakemake's process, before anything is read.

    Raises:
        SystemExit: with status 2 after one line on stderr.
    """
    outlive_readers()
    name_user()
    if workflow.is_main_process:
        with exit_on_user_error():
            for folder in MADE:
                expect_folder(folder)
            refuse_other_places(workflow)
        forget_dead_calls()
        expect_image(workflow)


def refuse_other_places(workflow: Any) -> None:
    """Refuse outputs and records in places where commands neither write nor read.

    Raises:
        UserError: with what asks for them.
    """
    modified = workflow.modifier.path_modifier.replace_prefix
    for path in (f"{folder}/" for folder in MADE):
        if (place := modified(path)) != path:
            why = f"{place}: expected no prefix: commands write to {path}"
            raise refusal(
                "Snakefile", f"{why} (`snakemake --directory` moves all)", "module", place
            )
    if storage := workflow.storage_settings.default_storage_provider:
        wanted = "none: commands write to files of this folder"
        raise bad_argument("--default-storage-provider", storage, wanted)
    backend = getattr(workflow.workflow_settings, "persistence_backend", None)  # a new setting
    if backend is not None and backend.name != "FILE":
        wanted = f"file: the rules read records in {RECORDS}"
        raise bad_argument("--persistence-backend", backend.name.lower(), wanted)


def default_resources(workflow: Any) -> Any:
    """The default resources of the profile and the command line."""
    from snakemake.resources import Resources  # type: ignore[import-untyped]

    return Resources.from_mapping(workflow.resource_settings.default_resources or {})


def on_start(workflow: Any) -> bool:
    """Prepare to run jobs. Return True if they will run on this machine."""
    if not workflow.is_main_process or workflow.touch:  # which only changes times
        return False
    reset_future_mtimes()
    keep_outlived(workflow)
    keep_finished_results()
    keep_asking_slurm(workflow)
    throttle_scheduler(workflow)
    return bool(workflow.local_exec)


def on_error(workflow: Any) -> None:
    """After a failure, print what failed, and render the requested pages with empty cells.

    Snakemake makes nothing of which an input failed. These files are marked as incomplete, so that
    its next call makes them again. After an interruption, nothing is rendered.
    """
    scheduler = workflow.scheduler
    failed = scheduler.failed
    for job in failed:
        if _rule_of(job):
            say(f"fedrepro: failed: {job.output[0]}; see {job.log[0]}")
    if scheduler.running or scheduler._user_kill:
        return
    unfinished = [
        job
        for job in workflow.dag.needrun_jobs()
        if failed and job not in failed and not workflow.dag.finished(job)
    ]
    for rule in ("table", "page", "site"):
        for job in unfinished:
            if _rule_of(job) == rule:
                subprocess.run(["bash", "-c", job.shellcmd], check=False)
                workflow.persistence.started(job)


def _rule_of(job: Any) -> str:
    """The name that our files give a job's rule; "" for someone's own rule.

    A Snakefile that imports the rules may rename them, but their logs keep their places.
    """
    place = Path(job.log[0]).parts if job.log else ()
    return place[2].removesuffix(".log") if place[:2] == ("results", "logs") else ""


# Hooks. Snakemake keeps one function for `onstart` and one for `onerror`: the last that was given.
# It ignores those of a module. Runs would be made again, and tables missing, without a word.


def call_first(workflow: Any, hook: str, ours: Callable[[], object]) -> None:
    """Call a function at a hook, before the one that the user's Snakefile may have for it."""
    if hook in vars(workflow):  # a module is read again for each `use rule`
        return
    register = getattr(workflow, hook)

    def both(theirs: Callable[[object], object]) -> Callable[[object], None]:
        def call(log: object) -> None:
            ours()
            theirs(log)

        return call

    setattr(workflow, f"_{hook}", both(getattr(workflow, f"_{hook}")))
    setattr(workflow, hook, lambda theirs: register(both(theirs)))


# Messages. When the reader of its output goes away, such as `tee` or `head`, Snakemake's handler of
# messages raises BrokenPipeError, which ends the call and leaves the rest unmade.


@cache  # once per process
def outlive_readers() -> None:
    """Let no message fail in this process."""
    streams = sys.stdout, sys.stderr
    atexit.register(let_go, *streams)
    sys.stdout, sys.stderr = (cast(IO[str], Unfailing(stream)) for stream in streams)
    for handler in logging.getLogger("snakemake.logging").handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream in streams:
            handler.setStream(Unfailing(handler.stream))


def name_user() -> None:
    """Call the user by its number if it has no name, as in a container.

    Snakemake asks `getpass` for its report, and fails.
    """
    try:
        getpass.getuser()
    except (KeyError, OSError):  # OSError since Python 3.13
        os.environ["LOGNAME"] = f"uid{os.getuid()}"


# Reasons. Snakemake describes a job in some ten lines, with every file. If a profile is quiet about
# reasons, a job is described by rule, wildcards and a short reason instead; ``--quiet host`` on the
# command line restores Snakemake's description.

# A reason with a list of files, or of parameters, which are hashes in our rules.
LISTED = re.compile(r"(?P<words>[A-Z][\w ]*): (?P<files>.+)")
MISSING = "Missing output files"
PARAMS = "Params have changed"
FORCED = "Forced execution"
FOLLOWS = "Input files updated by another job"  # follows from other jobs, whose reasons are shown


class ShortReasons(logging.Filter):
    """Shortens log records of jobs, which have the keys of Snakemake's logger plug-ins.

    Args:
        forced: output -> why it is made again, for jobs of :mod:`fedrepro.workflow.rerun_checks`.
    """

    def __init__(self, forced: Mapping[str, str]) -> None:
        super().__init__()
        self.forced = forced

    def filter(self, record: logging.LogRecord) -> bool:
        fields: dict[str, Any] = record.__dict__
        event = getattr(fields.get("event"), "name", None)
        if event == "JOB_INFO":
            fields["rule_msg"] = fields["rule_msg"] or self._description(fields)
        elif event == "JOB_ERROR":
            fields |= {key: _shortened(fields[key]) for key in ("input", "output")}
        return True

    def _description(self, fields: Mapping[str, Any]) -> str:
        """A job's rule, wildcards and reason."""
        wildcards, reason = fields["wildcards"], short_reason(fields["reason"])
        name = " ".join((fields["rule_name"], *wildcards.values()))
        known: list[str] = []
        if FORCED in reason:
            known = [self.forced[path] for path in fields["output"] or () if path in self.forced]
            reason = "; ".join(known or [reason])
        if fields["rule_name"] == "run" and (known or PARAMS in reason):
            call = "fedrepro explain {setting} {method} --seed {seed}".format_map(wildcards)
            reason = f"{reason}: {call}"
        return f"{name}: {reason}"


def shorten_reasons(workflow: Any, forced: Mapping[str, str]) -> None:
    """Describe this call's jobs briefly, if it is quiet about Snakemake's reasons."""
    log = logging.getLogger("snakemake.logging")
    quiet = {choice.name for choice in workflow.output_settings.quiet or ()}
    present = any(isinstance(known, ShortReasons) for known in log.filters)
    if workflow.is_main_process and "REASON" in quiet and not present:
        log.addFilter(ShortReasons(forced))


def short_reason(reason: str) -> str:
    """Snakemake's reasons without lists, and without those that follow from other jobs."""
    parts = reason.split("; ")
    own = [part for part in parts if not part.startswith(FOLLOWS)]
    return "; ".join(map(_without_list, own or parts))


def _without_list(part: str) -> str:
    match = LISTED.fullmatch(part)
    if match is None:
        return part
    if match["words"].startswith((MISSING, PARAMS)):  # the files of the job; hashes
        return match["words"]
    return ": ".join((match["words"], *_shortened(match["files"].split(", "))))


def _shortened(files: list[str]) -> list[str]:
    """The first file, and the number of others."""
    more = f" and {len(files) - 1} more" if files[1:] else ""
    return [f"{min(files)}{more}"] if files else []


# The image. Without it, each job would fail for itself.


def expect_image(workflow: Any) -> None:
    """Expect the image if jobs run in it.

    Raises:
        SystemExit: with status 2 after one line on stderr.
    """
    asked = {method.name for method in workflow.deployment_settings.deployment_method}
    with exit_on_user_error():
        if "APPTAINER" in asked and not Path(IMAGE).exists():
            why = "expected the image of `--sdm apptainer`; docs/cluster.md says how to build it"
            raise refusal(IMAGE, why, code="missing")


# Calls that were killed. Snakemake's locks are plain files, which stay after a `kill -9` or a power
# cut, and it then asks for `--unlock`. Therefore each call also holds one of our locks, which is
# released when it dies (:mod:`fedrepro.support.locks`).

LOCKS = Path(".snakemake/locks")
CALLS = Path(".snakemake/calls")


@cache  # once per process
def forget_dead_calls() -> None:
    """Hold this call's lock until the process ends; remove Snakemake's locks of dead calls.

    In this order, so that of two calls that start at once, each sees the other. If another call is
    alive, all locks stay, and Snakemake decides whether they conflict.

    Raises:
        SystemExit: with status 2 after one line on stderr, if the lock cannot be written.
    """
    with exit_on_user_error():
        alive = ExitStack()
        this_call = CALLS.absolute() / f"{socket.gethostname()}-{os.getpid()}"
        alive.enter_context(exclusive_lock(this_call))
        atexit.register(alive.close)
        locks = list(LOCKS.glob("*.lock"))
        calls = {_call_of(lock) for lock in this_call.parent.glob(".*.lock")} - {this_call}
        if locks and all(map(_is_dead, calls)):
            for lock in locks:
                lock.unlink(missing_ok=True)


def _call_of(lock: Path) -> Path:
    return lock.with_name(lock.name[1:].removesuffix(".lock"))


def _is_dead(call: Path) -> bool:
    """Return True if its lock can be had; on another machine's the signs of life are awaited."""
    try:
        with exclusive_lock(call, busy="alive"):
            return True
    except UserError:
        return False


def keep_outlived(workflow: Any) -> None:
    """Save the results of runs that finished after their Snakemake call was killed.

    Snakemake knows only that such a run was started: it removes the files and calls the command
    again. The command then uses the saved result, if it is that of the same run.
    """

    async def unacknowledged() -> list[Any]:
        jobs = [job for job in workflow.dag.needrun_jobs() if _rule_of(job) == "run"]
        return [job for job in jobs if await workflow.persistence.incomplete(job)]

    for job in workflow.async_run(unacknowledged()):
        _save_result(job)


def keep_finished_results() -> None:
    """Save the results of finished runs that Snakemake removes without having asked them.

    Before it starts a job it removes its files. The command uses what is saved if it is the very
    run: one that another terminal has finished meanwhile, or whose parent was made again. Another
    one stays until the new one is finished: a job may fail at once, as for want of a GPU. After a
    job has failed its files are removed, too, though it may have been killed after its run's end.
    """
    from snakemake.jobs import Job  # type: ignore[import-untyped]

    for name in ("remove_existing_output", "cleanup"):
        if getattr(Job, name).__name__ != "save_and_remove":
            setattr(Job, name, _saving_first(getattr(Job, name), failed=name == "cleanup"))


def _saving_first(remove: Callable[..., Awaitable[None]], *, failed: bool) -> Any:
    async def save_and_remove(job: Any, *arguments: Any) -> None:
        # By `--forcerun`, one that was current is to be made again.
        repeated = not failed and job.dag.reason(job).forced and not _kept.isdisjoint(job.output)
        if _rule_of(job) == "run" and not repeated:
            _save_result(job)
        with exit_on_user_error(), writing(f"outputs of rule {_rule_of(job)}"):
            await remove(job, *arguments)

    return save_and_remove


def _save_result(job: Any) -> None:
    """Move a run's result to its checkpoints, where its command looks for one."""
    from fedrepro.run.replacement import move_result  # which imports PyTorch

    folder = Path(job.output.manifest).parent
    partial = partial_of(folder)
    # Not while its process still holds the lock.
    with suppress(UserError, OSError), exclusive_lock(partial, busy="under way"):
        move_result(folder, partial / FINISHED)


# File times. Snakemake considers a job failed, and removes its outputs, if its inputs are newer
# than they are. So files from the future, which a wrong clock leaves, would fail all that follows.

MADE = (Path("results"), Path("reports/site"))
AHEAD = 60.0  # seconds; machines that share files differ by less


def reset_future_mtimes(folders: Iterable[Path] = MADE) -> int:
    """Set files with future timestamps to the present time, and print how many.

    This does not invalidate what was made from them, because Snakemake compares checksums.

    Returns:
        The number of files.
    """
    now, changed = time.time(), 0
    for path, about in (each for folder in folders for each in all_below(folder)):
        if stat.S_ISREG(about.st_mode) and about.st_mtime > now + AHEAD:
            with suppress(OSError):  # another process has removed it, or it may not be written to
                os.utime(path)
                changed += 1
    if changed:
        say(f"fedrepro: {changed:,} files had future timestamps (clock error); reset to now")
    return changed


# The scheduler. After each look at the ready jobs, it schedules another for a second later, as its
# limit on jobs per second may allow more by then. A job's end is one more reason to look. So each
# finished job adds a look to every second that follows: 6,399 for 194 jobs, 90 s of CPU time for
# 548. See github.com/snakemake/snakemake/issues/2354.


def throttle_scheduler(workflow: Any) -> None:
    """While a look is scheduled, schedule no other."""
    scheduler, scheduled = workflow.scheduler, threading.Event()

    def look() -> None:
        scheduled.clear()  # first, so that this look can schedule the next
        scheduler._open_jobs.release()

    def schedule(delay: float) -> None:
        if not scheduled.is_set():
            scheduled.set()
            threading.Timer(delay, look).start()

    scheduler._schedule_reevalutation = schedule


# SLURM. The plug-in drops all jobs from its list when a query of their states fails, as while
# slurmctld restarts, and then waits for ever (github.com/snakemake/snakemake-executor-plugin-slurm,
# issues 207 and 331). If the controller does not answer, it asks `sacct`, which never answers
# without accounting (issue 38). And it awaits for ever a job that SLURM no longer lists: one that
# ended longer than MinJobAge ago, or that a restarted controller has lost.

PLUGIN = "snakemake_executor_plugin_slurm"
FORGOTTEN = 60.0  # seconds that `squeue` must answer without a job before the job counts as ended
SILENT = 60.0  # seconds without an answer between two lines about it
LONGEST = 24 * 3600.0  # seconds without an answer, after which the call ends

States = dict[str, str] | None  # by job id; None: no answer
Answer = tuple[States, float | None]  # and the seconds that it took


def keep_asking_slurm(workflow: Any) -> None:
    """Replace how the executor of this call queries states, if it is the SLURM plug-in's."""
    executor = workflow.scheduler._executor
    if type(executor).__module__ == PLUGIN:
        SlurmQueries(executor, sys.modules[PLUGIN])


class SlurmQueries:
    """The plug-in's queries, with an answer to every one.

    While no command answers, no job is known to have ended, and all stay on the plug-in's list. A
    job that ``squeue`` no longer lists gets the state UNKNOWN: the plug-in then takes it as ended,
    and Snakemake takes its files or, if there are none, fails it or tries it again.
    """

    def __init__(self, executor: Any, plugin: ModuleType) -> None:
        self._check, self._query = executor.check_active_jobs, plugin.query_job_status
        self._by_squeue = plugin.query_job_status_squeue(executor.run_uuid)
        self._ids: list[str] = []
        self._unlisted: dict[str, float] = {}  # job id -> since when
        self._answered = self._said = time.monotonic()
        executor.check_active_jobs = self.check
        plugin.query_job_status = self.query  # type: ignore[attr-defined]

    async def check(self, active_jobs: Sequence[Any]) -> AsyncIterator[Any]:
        """Yield the jobs that have not ended, as the plug-in does."""
        self._ids = [job.external_jobid for job in active_jobs]
        if not active_jobs:  # nothing is asked
            self._answered = time.monotonic()
        async for job in self._check(active_jobs):
            yield job

    async def query(self, command: str, logger: Any) -> Answer:
        """The states of this call's jobs; empty if no command answers.

        Raises:
            RuntimeError: after ``LONGEST`` without an answer.
        """
        states, seconds = await self._query(command, logger)
        if states is None and command != self._by_squeue:
            command = self._by_squeue
            states, seconds = await self._query(command, logger)
        if states is None:
            self._say_silent()
            return {}, 0.0
        self._answered = self._said = time.monotonic()
        if command == self._by_squeue:
            states |= self._forgotten(states)
        return states, seconds

    def _say_silent(self) -> None:
        now = time.monotonic()
        silent = now - self._answered
        if silent > LONGEST:
            raise RuntimeError(
                f"SLURM has not answered for {silent / 3600:.0f} h: its jobs may be under way; "
                "give the same command again when squeue answers"
            )
        if now - self._said > SILENT:
            self._said = now
            say(
                f"fedrepro: SLURM has not answered for {silent:.0f} s; asking on (see what squeue "
                "says)"
            )

    def _forgotten(self, states: dict[str, str]) -> dict[str, str]:
        """The state UNKNOWN for every job that has not been listed for ``FORGOTTEN``."""
        now = time.monotonic()
        # squeue lists the waiting tasks of an array together, as 17_[3-5].
        listed = {job.partition("_")[0] for job in states}
        unlisted = [job for job in self._ids if job.partition("_")[0] not in listed]
        self._unlisted = {job: self._unlisted.get(job, now) for job in unlisted}
        gone = [job for job, since in self._unlisted.items() if now - since >= FORGOTTEN]
        for job in gone:
            say(
                f"fedrepro: SLURM no longer lists job {job}: it counts as ended, and its files "
                "decide"
            )
            del self._unlisted[job]
        return dict.fromkeys(gone, "UNKNOWN")


# Records of how files were made, in `.snakemake`. Snakemake compares a job's parameters with them,
# and takes a file without a record for current. Neither has a public interface: rules that render
# repeat recorded parameters, and rules force outputs.

RECORDS = Path(".snakemake/metadata")
BEGUN = Path(".snakemake/incomplete")
LONGEST_NAME = 254  # of a record's file; longer names are split into folders
PARAMS_FROM = 6  # the first format of records that has all parameters


def force(workflow: Any, output: str) -> None:
    """Have an output made again, whatever is recorded of it."""
    workflow.dag.forcefiles.add(output)


def keep(output: str) -> None:
    """Let neither an input's time nor a parameter be a reason to make an output that is there.

    Only a job that makes an input is one. Snakemake takes a newer input for changed, unless it
    has recorded its checksum, and a parameter that older rules had.
    """
    from snakemake import jobs, persistence  # type: ignore[import-untyped]

    Job, Records, SAME = jobs.Job, persistence.PersistenceBase, persistence.NO_PARAMS_CHANGE
    if not _kept:
        time_of_oldest, params_changed = Job.output_mintime.fget, Records.params_changed

        async def time_of_output(job: Any) -> float | None:
            oldest: float | None = await time_of_oldest(job)
            return oldest if oldest is None or _kept.isdisjoint(job.output) else math.inf

        def changed(records: Any, job: Any, file: Any = None) -> Any:
            return params_changed(records, job, file) if _kept.isdisjoint(job.output) else SAME

        Job.output_mintime, Records.params_changed = property(time_of_output), changed
    _kept.add(output)


_kept: set[str] = set()  # outputs that say themselves that they are current


def has_begun(root: Path, output: Path) -> bool:
    """Return True if Snakemake's last job that makes a file did not finish."""
    return (root / _file_of(BEGUN, output)).exists()


def recorded_parameters(
    root: Path, outputs: Iterable[Path], known: Sequence[object], count: int
) -> list[Any] | None:
    """The parameters with which Snakemake recorded all of a job's outputs, but for known ones.

    Args:
        known: the values of the job's other parameters now.
        count: how many parameters are looked for.

    Returns:
        Their values in any order, which is all that Snakemake compares; None unless every output
        is recorded with the known ones and as many others.
    """
    records = [read_record(root, path) for path in outputs]
    listed = {tuple(record["params"]) if _has_parameters(record) else None for record in records}
    parameters = listed.pop() if len(listed) == 1 else None
    if parameters is None:
        return None
    unknown = list(parameters)
    for value in known:
        if repr(value) not in unknown:
            return None
        unknown.remove(repr(value))
    try:
        values = [ast.literal_eval(text) for text in unknown]
    except (ValueError, SyntaxError, TypeError):
        return None
    return values if len(values) == count and list(map(repr, values)) == unknown else None


def was_recorded_with(record: Mapping[str, Any], value: object) -> bool:
    """Return False if a record has all parameters of its job, and none of this value."""
    return not _has_parameters(record) or repr(value) in record["params"]


def _has_parameters(record: Mapping[str, Any]) -> bool:
    version = record.get("record_format_version", 0)
    return version >= PARAMS_FROM and isinstance(record.get("params"), list)


def _file_of(folder: Path, output: Path) -> Path:
    """The file in which Snakemake notes something about an output."""
    name = urlsafe_b64encode(str(output).encode()).decode()
    parts = [name[at : at + LONGEST_NAME] for at in range(0, len(name), LONGEST_NAME)]
    return folder.joinpath(*(f"@{part}" for part in parts[:-1]), parts[-1])


def read_record(root: Path, output: Path) -> dict[str, Any]:
    """A record; empty if it is missing or damaged, which Snakemake treats alike."""
    try:
        record = read_json(root / _file_of(RECORDS, output))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
