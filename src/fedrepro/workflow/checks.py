"""Whether every method and hyperparameter that the experiment files name exists and fits."""

from collections.abc import Iterator
from pathlib import Path

from fedrepro.config.tables import wrapped
from fedrepro.config.values import SCALES, Hyperparameters
from fedrepro.config.workbench import Workbench
from fedrepro.methods import _registry as registry
from fedrepro.methods._files import part_files
from fedrepro.run import fingerprint
from fedrepro.support.errors import UserError
from fedrepro.support.files import write_atomically

# Composing imports torch, which takes two seconds: not again for what has been checked.
MARK = Path(".snakemake/fedrepro-checked")

Claim = tuple[str, str, dict[str, Hyperparameters]]  # where it is made, composition, values


def check_methods(workbench: Workbench) -> None:
    """Compose every method that an experiment file names.

    Raises:
        UserError: for the first that can't be composed: one line with file and key.
    """
    claims = list(_claims(workbench))
    files = tuple(part_files().values())
    code = fingerprint.of_closure((fingerprint.module_path("fedrepro.methods._registry"), *files))
    verdict = fingerprint.of_text(f"{code} {claims!r}")
    mark = workbench.root / MARK
    if mark.exists() and mark.read_text(encoding="utf-8") == verdict:
        return
    for where, composition, hyperparameters in claims:
        try:
            registry.compose(composition, hyperparameters)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
    with write_atomically(mark) as temporary:
        temporary.write_text(verdict, encoding="utf-8")


def check_given(workbench: Workbench) -> None:
    """Resolve what the methods of all tables and figures need to be given.

    Raises:
        UserError: for the first that its setting does not give.
    """
    for target in (target for scale in SCALES for target in workbench.targets(scale).values()):
        for run in dict.fromkeys((run.setting, run.method, run.seed) for run in target.runs):
            workbench.run_spec(*run)


def _claims(workbench: Workbench) -> Iterator[Claim]:
    for system, experiment in workbench.experiments.items():
        file = workbench.files[system]
        sections = {"methods": experiment.methods} | {
            f"settings.{name}.methods": setting.methods
            for name, setting in experiment.readings.items()
        }
        for key, section in sections.items():
            for part, values in section.items():
                base = str(values.get("use", experiment.methods.get(part, {}).get("use", part)))
                own = ("use", "trunk")
                given = {name: value for name, value in values.items() if name not in own}
                yield f"{file}: {key}.{part}", base, {base: given}
                if values.get("trunk"):
                    trunk = str(values["trunk"])
                    known = experiment.methods.get(trunk, {}).get("use", trunk)
                    yield f"{file}: {key}.{part}.trunk", str(known), {}
        for item, table in experiment.tables.items():
            for column in table.columns:
                methods = {*column.methods_at("demo"), *column.methods_at("paper")}
                for method in sorted(methods):
                    for row in table.rows:
                        name = table.setting_of(row, column, "paper")
                        setting = workbench.setting(f"{system}/{name}")
                        where = f"{file}: tables.{item}.columns.{column.label}.method"
                        (whole,) = wrapped(row.around, [method])
                        yield where, *workbench.compose(setting, whole)
        for item, figure in experiment.figures.items():
            needs = dict.fromkeys((*figure.needs("paper"), *figure.needs("demo")))
            for name, method in needs:
                setting = workbench.setting(f"{system}/{name}")
                yield f"{file}: figures.{item}", *workbench.compose(setting, method)
