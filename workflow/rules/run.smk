# One run: setting x method x seed. Tables share runs.


rule run:
    input:
        GRAPH.inputs_of_run,
        # To wait for. Not as `ancient`: of a run that waits for another that is made again,
        # Snakemake then overlooks what else has changed.
        trunk=GRAPH.trunk_of_run,
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
        **GRAPH.resources(DEFAULTS),
        # Of which an allocation has as many as are given to it: docs/cluster.md.
        slot=1,
    params:
        code=GRAPH.run_code,
        config=GRAPH.run_definition,
    # How a run is executed does not make it another run, so it is no parameter.
    shell:
        "fedrepro --log {log} run {wildcards.setting} {wildcards.method}"
        f" --seed {{wildcards.seed}}{GRAPH.execution}"


# The loss around a run's model, for figures that ask for it.
rule landscape:
    input:
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
        # Asked for only where there is such a figure.
        code=lambda wildcards: GRAPH.code("fedrepro.analysis.landscape", "fedrepro.engine.evaluate"),
    shell:
        "fedrepro --log {log} landscape {wildcards.setting} {wildcards.method}"
        " --seed {wildcards.seed}"


# The loss through models that a run kept, likewise: on a line, or on a plane.
rule landscape_through:
    input:
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
        code=lambda wildcards: GRAPH.code("fedrepro.analysis.landscape", "fedrepro.engine.evaluate"),
        arguments=GRAPH.landscape_arguments,
    shell:
        "fedrepro --log {log} landscape {wildcards.setting} {wildcards.method}"
        " --seed {wildcards.seed} {params.arguments}"


# What the synthetic set of a run is worth, for tables and figures that ask for it. How it is judged
# is no part of the run.
rule quality:
    input:
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
        judge=GRAPH.judge,
    shell:
        "fedrepro --log {log} quality {wildcards.setting} {wildcards.method}"
        " --seed {wildcards.seed}"
