# IMA: why averaging models works.


# The terms of the expected loss, over runs that differ in their seed.
rule decompose:
    input:
        # No input: forces the job if Snakemake has no record of the output.
        RERUN.unrecorded("results/decompositions/{setting}/{method}/seeds{seeds}_{samples}.json"),
        GRAPH.runs_of_seeds,
    output:
        "results/decompositions/{setting}/{method}/seeds{seeds}_{samples}.json",
    log:
        "results/logs/decompose/{setting}/{method}/seeds{seeds}_{samples}.log",
    conda:
        "../../envs/fedrepro.yaml"
    threads: GRAPH.bench.config.threads
    params:
        code=lambda wildcards: GRAPH.code("fedrepro.papers.ima.decomposition_of_runs"),
        seeds=lambda wildcards: wildcards.seeds.replace("-", " "),
    shell:
        "fedrepro --log {log} decompose {wildcards.setting} {wildcards.method}"
        " --seeds {params.seeds} --samples {wildcards.samples}"
