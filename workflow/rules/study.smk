# Results for a paper that need no run, such as the costs of methods. They are the same at both scales.


rule study:
    input:
        # No input: forces the job if Snakemake has no record of the output.
        RERUN.unrecorded("results/studies/{study}.json"),
    output:
        "results/studies/{study}.json",
    log:
        "results/logs/study/{study}.log",
    conda:
        "../envs/fedrepro.yaml"
    params:
        code=GRAPH.study_code,
    shell:
        "fedrepro --log {log} study {wildcards.study}"
