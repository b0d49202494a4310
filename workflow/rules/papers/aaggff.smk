# AAggFF: what decisions cost.


# The regret of a run's decisions, for figures that ask for it.
rule regret:
    input:
        # No input: forces the job if Snakemake has no record of the output.
        RERUN.unrecorded("results/regrets/{setting}/{method}/seed{seed}.json"),
        "results/runs/{setting}/{method}/seed{seed}/manifest.json",
    output:
        "results/regrets/{setting}/{method}/seed{seed}.json",
    log:
        "results/logs/regret/{setting}/{method}/seed{seed}.log",
    conda:
        "../../envs/fedrepro.yaml"
    params:
        code=GRAPH.code_with_method("fedrepro.papers.aaggff.regret_of_run"),
    shell:
        "fedrepro --log {log} regret {wildcards.setting} {wildcards.method}"
        " --seed {wildcards.seed}"
