"""One line for why each job runs: Snakemake's reasons without hundreds of file names.

Snakemake describes a job in some ten lines, with every file. If a profile is quiet about reasons,
jobs are described by rule, wildcards and a short reason instead; ``--quiet host`` on the command
line restores Snakemake's description.
"""

import logging
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# A reason with a list of files, or of parameters, which are hashes in our rules.
LISTED = re.compile(r"(?P<words>[A-Z][\w ]*): (?P<files>.+)")
MISSING = "Missing output files"
PARAMS = "Params have changed"
FORCED = "Forced execution"
FOLLOWS = "Input files updated by another job"  # follows from other jobs, whose reasons are shown


class Brief(logging.Filter):
    """Shortens log records of jobs, which have the keys of Snakemake's logger plug-ins.

    Args:
        why: output -> why it is made again, for jobs of :mod:`fedrepro.workflow.again`.
    """

    def __init__(self, why: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__()
        self.why = why

    def filter(self, record: logging.LogRecord) -> bool:
        about: dict[str, Any] = record.__dict__
        event = getattr(about.get("event"), "name", None)
        if event == "JOB_INFO":
            about["rule_msg"] = about["rule_msg"] or _described(about, self.why)
        elif event == "JOB_ERROR":
            about |= {key: _few(about[key]) for key in ("input", "output")}
        return True


def shorten(workflow: Any, why: Mapping[str, str]) -> None:
    """Describe this call's jobs briefly, if it is quiet about Snakemake's reasons."""
    log = logging.getLogger("snakemake.logging")
    quiet = {each.name for each in workflow.output_settings.quiet or ()}
    if "REASON" in quiet and not any(isinstance(each, Brief) for each in log.filters):
        log.addFilter(Brief(why))


def _described(about: Mapping[str, Any], why: Mapping[str, str]) -> str:
    """A job's rule, wildcards and reason."""
    wildcards, reason = about["wildcards"], brief(about["reason"])
    name = " ".join((about["rule_name"], *wildcards.values()))
    known: list[str] = []
    if FORCED in reason:
        known = [why[output] for output in about["output"] or () if output in why]
        reason = "; ".join(known or [reason])
    if about["rule_name"] == "run" and (known or PARAMS in reason):
        call = "fedrepro explain {setting} {method} --seed {seed}".format_map(wildcards)
        reason = f"{reason}: {call}"
    return f"{name}: {reason}"


def brief(reason: str) -> str:
    """Snakemake's reasons without lists, and without those that follow from other jobs."""
    parts = reason.split("; ")
    own = [part for part in parts if not part.startswith(FOLLOWS)]
    return "; ".join(map(_without_list, own or parts))


def _without_list(part: str) -> str:
    found = LISTED.fullmatch(part)
    if found is None:
        return part
    if found["words"].startswith((MISSING, PARAMS)):  # the files of the job; hashes
        return found["words"]
    return ": ".join((found["words"], *_few(found["files"].split(", "))))


def _few(files: list[str]) -> list[str]:
    """The first file, and the number of others."""
    more = f" and {len(files) - 1} more" if files[1:] else ""
    return [f"{min(files)}{more}"] if files else []
