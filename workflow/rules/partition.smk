# Which samples each client holds: one file for all methods and settings that share it.


rule partition:
    input:
        RERUN.stale_partition,  # no input: forces the job if its output is stale
        "results/data/{dataset}/meta.json",
    output:
        shares="results/partitions/{dataset}/{partition}/seed{seed}.npz",
        histogram="results/partitions/{dataset}/{partition}/seed{seed}.json",
    log:
        "results/logs/partition/{dataset}/{partition}/seed{seed}.log",
    conda:
        "../envs/fedrepro.yaml"
    params:
        # Because the function takes `output`, Snakemake does not compare its value with the last
        # run's. Any of the settings that share the partition may be named.
        setting=lambda wildcards, output: GRAPH.setting_of_partition(wildcards),
    shell:
        "fedrepro --log {log} partition {params.setting} --seed {wildcards.seed}"
