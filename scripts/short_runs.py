"""Run settings for a few rounds, with the code of any commit that made a reference result.

`make replay` calls this file with that commit's package on PYTHONPATH, in a folder that has the
commit's config/. It therefore uses only names that the package has always had, or either of two.
Every other key of a setting is kept: a method's phases, which are shares of all rounds, fit into
the short run, and each round is evaluated.
"""

import json
import shutil
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any


def main(file: Path, rounds: int) -> None:
    """Write the code's fingerprint for each run of a list to standard output, as JSON.

    With ``rounds`` > 0, also make the runs. A run that the code does not know or fails on has None.
    """
    try:  # the package's layout until the first day's end
        command: Any = import_module("fedrepro.commands.run")
        fingerprint: Any = import_module("fedrepro.fingerprint")
        names: Any = command.config
    except ModuleNotFoundError:
        command = import_module("fedrepro.cli.run")
        names = command if hasattr(command, "load") else import_module("fedrepro.cli.arguments")
        fingerprint = import_module("fedrepro.provenance.fingerprint")
    found: list[str | None] = []
    for setting, method, seed, executor in json.loads(file.read_text(encoding="utf-8")):
        bench = names.load(overrides=names.Overrides(executor=executor))
        resolve = "run_spec" if hasattr(bench, "run_spec") else "run_config"
        try:
            code = fingerprint.of_code(getattr(bench, resolve)(setting, method, seed))
            if rounds:
                _play(command, type(bench), resolve, bench, (setting, method, seed), rounds)
        except Exception as error:  # older code raises other errors for what it does not know
            print(f"{setting} {method}: {error}", file=sys.stderr)
            code = None
        found.append(code)
    print(json.dumps(found))


def _play(
    command: Any, kind: Any, resolve: str, bench: Any, run: tuple[str, str, int], rounds: int
) -> None:
    original = getattr(kind, resolve)
    command._numbers = lambda *_: ""  # what tables would print of a complete run
    key = getattr(command, "RunKey", None) or command.Run
    setattr(kind, resolve, lambda *given: _shortened(original(*given), rounds))
    try:
        command.carry_out(bench, key(*run))
    finally:
        setattr(kind, resolve, original)
        shutil.rmtree("results/trunks", ignore_errors=True)  # every run trains all of its rounds


def _shortened(spec: Any, rounds: int) -> Any:
    if isinstance(spec, dict):
        return {**spec, "rounds": rounds, "evaluate": {**spec["evaluate"], "every": 1}}
    evaluate = spec.setting.evaluate.model_copy(update={"every": 1})
    changes = {"rounds": rounds, "evaluate": evaluate}
    return replace(spec, setting=spec.setting.model_copy(update=changes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
