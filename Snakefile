# The whole workbench as one graph of files: data, partitions, runs, tables, pages.
#
#   snakemake --cores all                                everything at the configured scale
#   snakemake --cores all reports/site/ima/table_1.html  one table and what it needs
#   snakemake --cores all --config scale=paper           the published settings
#   snakemake --workflow-profile workflow/profiles/slurm on a cluster


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/partition.smk"
include: "workflow/rules/run.smk"
include: "workflow/rules/study.smk"
include: "workflow/rules/report.smk"


# Short, or in need of the network: done where Snakemake runs, not as jobs of a cluster.
localrules:
    all,
    download,
    table,
    page,
    site,


rule all:
    default_target: True
    input:
        "reports/site/index.html",
        GRAPH.results(),


onstart:
    if workflow.is_main_process and workflow.local_exec:
        open_warm_start()


onerror:
    show_holes(workflow)
