# One run: setting x method x seed. Tables share runs. GRAPH, RERUN and RESOURCES are made in common.smk, of
# graph.py, rerun_checks.py and resources.py in src/fedrepro/workflow.


rule run:
    input:
        # A function that gives no input: it forces the run if its manifest says that it is stale.
        RERUN.stale_run,
        GRAPH.inputs_of_run,
        # The parent run, so that this run waits for it. With `ancient`, Snakemake would overlook
        # other changed inputs of this run while the parent is being made again.
        parent=GRAPH.parent_of_run,
    output:
        manifest="results/runs/{setting}/{method}/seed{seed}/manifest.json",
        rounds="results/runs/{setting}/{method}/seed{seed}/rounds.parquet",
        clients="results/runs/{setting}/{method}/seed{seed}/clients.parquet",
        model="results/runs/{setting}/{method}/seed{seed}/model.safetensors",
        timing="results/runs/{setting}/{method}/seed{seed}/timing.json",
    log:
        "results/logs/run/{setting}/{method}/seed{seed}.log",
    conda:
        "../envs/fedrepro.yaml"
    threads: GRAPH.bench.config.threads
    resources:
        **RESOURCES.by_name(),
        # An allocation shared by several runs limits how many of them run at a time: docs/cluster.md.
        slot=1,
    shell:
        "fedrepro --log {log} run {wildcards.setting} {wildcards.method}"
        f" --seed {{wildcards.seed}}{GRAPH.device_and_executor}"


# The loss around a run's model, for figures that show it.
rule landscape:
    input:
        # No input: forces the job if Snakemake has no record of the output.
        RERUN.unrecorded("results/landscapes/{setting}/{method}/seed{seed}.json"),
        manifest="results/runs/{setting}/{method}/seed{seed}/manifest.json",
        model="results/runs/{setting}/{method}/seed{seed}/model.safetensors",
        data=GRAPH.inputs_of_run,
    output:
        "results/landscapes/{setting}/{method}/seed{seed}.json",
    log:
        "results/logs/landscape/{setting}/{method}/seed{seed}.log",
    conda:
        "../envs/fedrepro.yaml"
    threads: GRAPH.bench.config.threads
    params:
        # Evaluated only if there is such a figure.
        code=lambda wildcards: GRAPH.code("fedrepro.analysis.landscape_of_run"),
    shell:
        "fedrepro --log {log} landscape {wildcards.setting} {wildcards.method}"
        " --seed {wildcards.seed}"


# The loss on a line or plane through models that a run kept, also for figures.
rule landscape_through:
    input:
        # No input: forces the job if Snakemake has no record of the output.
        RERUN.unrecorded("results/landscapes/{setting}/{method}/seed{seed}/{part}.json"),
        manifest="results/runs/{setting}/{method}/seed{seed}/manifest.json",
        data=GRAPH.inputs_of_run,
    output:
        "results/landscapes/{setting}/{method}/seed{seed}/{part}.json",
    log:
        "results/logs/landscape/{setting}/{method}/seed{seed}/{part}.log",
    conda:
        "../envs/fedrepro.yaml"
    threads: GRAPH.bench.config.threads
    params:
        code=lambda wildcards: GRAPH.code("fedrepro.analysis.landscape_of_run"),
        arguments=GRAPH.landscape_arguments,
    shell:
        "fedrepro --log {log} landscape {wildcards.setting} {wildcards.method}"
        " --seed {wildcards.seed} {params.arguments}"


# The quality of a run's synthetic set, for tables and figures that show it. How it is evaluated is not
# part of the run's identity.
rule quality:
    input:
        # No input: forces the job if Snakemake has no record of the output.
        RERUN.unrecorded("results/quality/{setting}/{method}/seed{seed}.json"),
        manifest="results/runs/{setting}/{method}/seed{seed}/manifest.json",
        model="results/runs/{setting}/{method}/seed{seed}/model.safetensors",
        data=GRAPH.inputs_of_run,
    output:
        "results/quality/{setting}/{method}/seed{seed}.json",
        "results/quality/{setting}/{method}/seed{seed}.pairs.safetensors",
    log:
        "results/logs/quality/{setting}/{method}/seed{seed}.log",
    conda:
        "../envs/fedrepro.yaml"
    threads: GRAPH.bench.config.threads
    params:
        code=GRAPH.quality_code,
        judge=GRAPH.evaluator,
    shell:
        "fedrepro --log {log} quality {wildcards.setting} {wildcards.method}"
        " --seed {wildcards.seed}"
