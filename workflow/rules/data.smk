# Data sets: raw files, then memory-mapped arrays.


rule download:
    output:
        "results/downloads/{dataset}/files.json",
    log:
        "results/logs/download/{dataset}.log",
    localrule: True  # it needs the network: never a job of a cluster
    conda:
        "../envs/fedrepro.yaml"
    params:
        recipe=GRAPH.recipe_of_download,
    shell:
        "fedrepro --log {log} download {wildcards.dataset}"


rule prepare:
    input:
        RERUN.stale_data,  # no input: forces the job if meta.json says that it is stale
        "results/downloads/{dataset}/files.json",
    output:
        "results/data/{dataset}/meta.json",
    log:
        "results/logs/prepare/{dataset}.log",
    conda:
        "../envs/fedrepro.yaml"
    shell:
        "fedrepro --log {log} prepare {wildcards.dataset}"
