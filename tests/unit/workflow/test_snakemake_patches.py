"""The private parts of Snakemake that are read or changed are as the patches take them to be.

A test that fails says which patch is to be looked at: it may be mended, or not needed any more.
"""

import inspect
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake import api, dag, jobs, persistence, workflow
from snakemake.logging import ColorizingTextHandler, DefaultFormatter
from snakemake.path_modifier import PathModifier
from snakemake.persistence.file import FilePersistence
from snakemake.resources import Resources
from snakemake.scheduling import job_scheduler
from snakemake.settings import types as settings
from snakemake_interface_executor_plugins.settings import DeploymentMethod

from fedrepro.support.errors import UserError
from fedrepro.workflow import snakemake_patches as patches
from support.places import ROOT

SCHEDULER = job_scheduler.JobScheduler
assert api  # which has to be imported before the others


@pytest.mark.parametrize(
    ("patch", "source", "text"),
    [
        (patches.outlive_readers, ColorizingTextHandler.emit, "except BrokenPipeError:"),
        (patches.name_user, workflow.Workflow.info_header.fget, "getpass.getuser()"),
        (patches.ShortReasons, DefaultFormatter, 'msg["rule_msg"]'),
        (patches.forget_dead_calls, FilePersistence, '"locks"'),
        (patches.keep_outlived, FilePersistence.incomplete, "async def incomplete("),
        (patches.keep_outlived, dag.DAG.needrun_jobs, "def needrun_jobs("),
        (patches.keep_finished_results, jobs.Job.prepare, "await self.remove_existing_output()"),
        (patches.keep_finished_results, dag.DAG, "reason.forced = True"),
        (patches.keep_finished_results, jobs.Job.cleanup, "await f.remove()"),
        (patches.call_first, workflow.Workflow.onstart, "self._onstart = func"),
        (patches.call_first, workflow.Workflow.onerror, "self._onerror = func"),
        (patches.on_error, SCHEDULER, "self.failed"),
        (patches.on_error, SCHEDULER, "self.running"),
        (patches.on_error, SCHEDULER, 'self._user_kill = "graceful"'),
        (patches.on_start, workflow.Workflow.touch.fget, "executors.touch"),
        (patches.refuse_other_places, PathModifier.replace_prefix, "def replace_prefix("),
        (patches.refuse_other_places, settings, "persistence_backend: PersistenceBackend"),
        (patches.on_error, FilePersistence.started, "def started("),
        (patches.throttle_scheduler, SCHEDULER._schedule_reevalutation, "threading.Timer("),
        (patches.throttle_scheduler, SCHEDULER, "self._open_jobs.release()"),
        (patches.keep_asking_slurm, SCHEDULER, "self._executor"),
        (patches.force, dag.DAG, "self.forcefiles"),
        (patches.keep, dag.DAG, "await job_.output_mintime"),
        (patches.keep, dag.DAG, "await f.is_newer(output_mintime_)"),
        (patches.keep, dag.DAG, "self.workflow.persistence.params_changed(job)"),
        (patches.recorded_parameters, persistence, "RECORD_FORMAT_VERSION = 6"),
        (patches.has_begun, FilePersistence, "urlsafe_b64encode"),
        (patches.default_resources, Resources, "def from_mapping("),
        (patches.expect_image, DeploymentMethod, "APPTAINER"),
    ],
)
def test_what_is_patched_is_still_so(patch: object, source: Any, text: str) -> None:
    assert text in inspect.getsource(source)


def test_the_plug_in_for_slurm_is_the_one_that_was_patched() -> None:
    """Another may answer every query itself: tests/slurm says whether the patch is needed."""
    text = (ROOT / "scripts/slurm-requirements.txt").read_text(encoding="utf-8")
    assert "snakemake-executor-plugin-slurm==2.8." in text


def test_many_requests_are_one_look_and_later_ones_another() -> None:
    looks = threading.Semaphore(0)
    scheduler = SimpleNamespace(_open_jobs=looks)
    patches.throttle_scheduler(SimpleNamespace(scheduler=scheduler))
    for _ in range(2):
        for _ in range(20):
            scheduler._schedule_reevalutation(0.05)
        assert looks.acquire(timeout=10)
        assert not looks.acquire(timeout=0.15)


def test_ours_is_called_once_and_before_the_user_s_own() -> None:
    """Whichever Snakefile gives its own first, and if the rules are read for each `use rule`."""

    class Snakemake:
        def __init__(self) -> None:
            self._onstart = lambda log: None

        def onstart(self, function: Any) -> None:
            self._onstart = function

    for given_first in (True, False):
        called: list[str] = []
        known = Snakemake()
        if given_first:
            known.onstart(called.append)
        for _ in range(2):
            patches.call_first(known, "onstart", lambda called=called: called.append("ours"))
        if not given_first:
            known.onstart(called.append)
        known._onstart("theirs")
        assert called == ["ours", "theirs"]


def job(rule: str, ended: bool = False) -> SimpleNamespace:
    return SimpleNamespace(
        rule=SimpleNamespace(name=rule),
        shellcmd=f"make {rule}",
        output=[f"{rule}.out"],
        log=[f"results/logs/{rule}.log"],
        ended=ended,
    )


@pytest.mark.parametrize(
    ("running", "killed"), [(set(), None), ({"a job"}, None), (set(), "graceful")]
)
@pytest.mark.parametrize("failed", [[], ["run"], ["run", "page"]])
def test_after_a_failure_what_shows_results_is_made_with_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failed: list[str],
    running: set[str],
    killed: str | None,
) -> None:
    """Tables before pages, and these before the first page; not what failed or has ended.

    Nothing after Ctrl-C, which leaves jobs running, or SIGTERM: whoever stops a call wants its end.
    """
    jobs = [job(rule) for rule in ("site", "run", "page", "study", "table")]
    jobs.append(job("table", ended=True))
    made: list[str] = []
    marked: list[str] = []
    monkeypatch.setattr(patches.subprocess, "run", lambda command, check: made.append(command[-1]))
    patches.on_error(
        SimpleNamespace(
            scheduler=SimpleNamespace(
                failed=[each for each in jobs if each.rule.name in failed],
                running=running,
                _user_kill=killed,
            ),
            dag=SimpleNamespace(needrun_jobs=lambda: jobs, finished=lambda job: job.ended),
            persistence=SimpleNamespace(started=lambda job: marked.append(job.shellcmd)),
        )
    )
    rendered = failed and not running and not killed
    shown = [rule for rule in ("table", "page", "site") if rule not in failed] if rendered else []
    assert made == marked == [f"make {rule}" for rule in shown]
    said = capsys.readouterr().err
    for each in jobs:
        assert (f"{each.rule.name}.log" in said) == (each.rule.name in failed)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("asked", [(), ("CONDA",), ("CONDA", "APPTAINER")])
def test_an_image_is_expected_where_jobs_run_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], there: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    if there:
        Path(patches.IMAGE).touch()
    methods = [SimpleNamespace(name=name) for name in asked]
    settings = SimpleNamespace(deployment_method=methods)
    workflow = SimpleNamespace(deployment_settings=settings)
    if "APPTAINER" in asked and not there:
        with pytest.raises(SystemExit, match="2"):
            patches.expect_image(workflow)
    else:
        patches.expect_image(workflow)


def in_places(
    prefix: str | None = None,
    replaced: dict[str, str] | None = None,
    storage: str | None = None,
    backend: str = "FILE",
) -> SimpleNamespace:
    """A workflow whose paths and records are where they were asked for."""
    stored = SimpleNamespace(default_storage_provider=storage)
    made = SimpleNamespace(
        storage_settings=stored,
        workflow_settings=SimpleNamespace(persistence_backend=SimpleNamespace(name=backend)),
    )
    inner = PathModifier(replaced, prefix, made)
    made.modifier = SimpleNamespace(path_modifier=PathModifier(None, None, made, inner))
    return made


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        ({"prefix": "sub"}, "module"),
        ({"replaced": {"results": "out"}}, "module"),
        ({"replaced": {"reports/site/": "pages/"}}, "module"),
        ({"storage": "s3"}, "--default-storage-provider"),
        ({"backend": "DB"}, "--persistence-backend"),
    ],
)
def test_places_where_commands_neither_write_nor_read_are_refused(
    asked: dict[str, Any], key: str
) -> None:
    """Files would be missing after hours of training, and all pages due in every call."""
    patches.refuse_other_places(in_places())
    patches.refuse_other_places(in_places(replaced={"mine": "yours"}))
    with pytest.raises(UserError) as error:
        patches.refuse_other_places(in_places(**asked))
    assert error.value.key == key


@pytest.mark.parametrize("main", [True, False])
def test_touching_moves_nothing(main: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It moved results of a killed call away, and said that all was done."""
    for name in ("reset_future_mtimes", "keep_outlived", "keep_finished_results"):
        monkeypatch.setattr(patches, name, lambda *given: pytest.fail("called"))
    assert not patches.on_start(SimpleNamespace(is_main_process=main, touch=True))
