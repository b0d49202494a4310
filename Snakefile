# The whole workbench as one graph of files: data, partitions, runs, tables, pages.
#
#   snakemake --cores all                                everything at the configured scale
#   snakemake --cores all reports/site/ima/table_1.html  one table and what it needs
#   snakemake --cores all --config scale=paper           the published settings
#   snakemake --workflow-profile profiles/slurm          on a cluster


include: "workflow/Snakefile"


# Snakemake ignores the default target of an included file, so this repeats it.
rule everything:
    default_target: True
    input:
        rules.all.input,
