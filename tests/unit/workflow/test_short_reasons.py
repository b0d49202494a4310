"""Why jobs run, in a line each."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.workflow.snakemake_patches import FOLLOWS, ShortReasons, short_reason, shorten_reasons

PARAMS = (
    "Params have changed since last execution: Union of exclusive params before and now across all "
    "output: before: 'a1','b2' now: 'a1','c3' "
)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Missing output files: b, a", "Missing output files"),
        (f"Missing output files: b; {FOLLOWS}: a, c, d", "Missing output files"),
        (f"{FOLLOWS}: c, a, b", f"{FOLLOWS}: a and 2 more"),
        ("Updated input files: x/meta.json", "Updated input files: x/meta.json"),
        (PARAMS, "Params have changed since last execution"),
        (
            f"Set of input files has changed since last execution; {PARAMS}",
            "Set of input files has changed since last execution; "
            "Params have changed since last execution",
        ),
        ("Forced execution", "Forced execution"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_reason_is_kept_and_its_lists_are_not(reason: str, said: str) -> None:
    assert short_reason(reason) == said


def record(event: str, **about: Any) -> logging.LogRecord:
    made = logging.makeLogRecord(about)
    made.event = SimpleNamespace(name=event)  # type: ignore[attr-defined]
    return made


def test_a_job_is_described_by_its_rule_and_its_wildcards() -> None:
    wildcards = {"setting": "ima/tiny", "method": "fedavg", "seed": "1"}
    job = record("JOB_INFO", rule_msg=None, rule_name="run", wildcards=wildcards, reason=PARAMS)
    assert ShortReasons({}).filter(job)
    assert job.rule_msg == (  # type: ignore[attr-defined]
        "run ima/tiny fedavg 1: Params have changed since last execution: "
        "fedrepro explain ima/tiny fedavg --seed 1"
    )
    forced = {"output": ["x", "y"], "reason": "Forced execution"}
    for why, reason in (
        ({"y": "it is damaged"}, "it is damaged: fedrepro explain ima/tiny fedavg --seed 1"),
        ({}, "Forced execution"),
    ):
        job = record("JOB_INFO", rule_msg=None, rule_name="run", wildcards=wildcards, **forced)
        assert ShortReasons(why).filter(job)
        assert job.rule_msg == f"run ima/tiny fedavg 1: {reason}"  # type: ignore[attr-defined]
    said = record("JOB_INFO", rule_msg="mine", rule_name="x", wildcards={}, reason="")
    assert ShortReasons({}).filter(said) and said.rule_msg == "mine"  # type: ignore[attr-defined]


def test_of_a_failed_job_not_all_files_are_named_and_all_else_is_left() -> None:
    failed = record("JOB_ERROR", input=["b", "a", "c"], output=["x"], log=["y", "z"])
    assert ShortReasons({}).filter(failed)
    about = failed.__dict__
    assert (about["input"], about["output"]) == (["a and 2 more"], ["x"])
    assert about["log"] == ["y", "z"]
    assert ShortReasons({}).filter(logging.makeLogRecord({"msg": "anything"}))


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    snakemakes = logging.getLogger("snakemake.logging")
    before = list(snakemakes.filters)
    snakemakes.filters.clear()
    yield snakemakes
    snakemakes.filters[:] = before


@pytest.mark.parametrize(("quiet", "count"), [(["REASON", "HOST"], 1), (["HOST"], 0), (None, 0)])
def test_only_a_call_that_is_quiet_about_reasons_is_shortened(
    log: logging.Logger, quiet: list[str] | None, count: int
) -> None:
    chosen = quiet and [SimpleNamespace(name=name) for name in quiet]
    settings = SimpleNamespace(quiet=chosen)
    workflow = SimpleNamespace(output_settings=settings, is_main_process=True)
    shorten_reasons(workflow, {})
    shorten_reasons(workflow, {})
    assert len(log.filters) == count
