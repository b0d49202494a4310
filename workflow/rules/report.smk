# Tables of numbers, then the pages that show them. Figures are drawn from runs and from their analyses.
# These rules only read what other rules have computed. They are short, and never jobs of a cluster.


rule table:
    input:
        # No input: forces the job if Snakemake has no record of the output.
        RERUN.unrecorded("results/tables/{scale}/{system}/{item}.json"),
        GRAPH.inputs_of_table,
    output:
        "results/tables/{scale}/{system}/{item}.json",
    log:
        "results/logs/table/{scale}/{system}/{item}.log",
    localrule: True
    conda:
        "../envs/fedrepro.yaml"
    params:
        code=GRAPH.code_of_table,
        paper=GRAPH.paper,
        definition=GRAPH.table_definition,
        published=GRAPH.finished_paper_runs,
    shell:
        "fedrepro --log {log} table {wildcards.system} {wildcards.item} --scale {wildcards.scale}"


rule page:
    input:
        # No input: forces the job if Snakemake has no record of the output.
        RERUN.unrecorded("reports/site/{system}/{item}.html"),
        GRAPH.inputs_of_page,
    output:
        "reports/site/{system}/{item}.html",
        # For `snakemake --report`, which needs self-contained files.
        report(
            "results/report/{system}/{item}.html",
            caption="../report/page.rst",
            category="{system}",
            labels={"item": "{item}"},
        ),
    log:
        "results/logs/page/{system}/{item}.log",
    localrule: True
    conda:
        "../envs/fedrepro.yaml"
    params:
        code=GRAPH.code_of_page,
        paper=GRAPH.paper,
        definition=GRAPH.page_definition,
        scale=GRAPH.scale,
    shell:
        "fedrepro --log {log} page {wildcards.system} {wildcards.item} --scale {params.scale}"


rule site:
    input:
        # No input: forces the job if Snakemake has no record of the output.
        RERUN.unrecorded("reports/site/index.html"),
        tables=GRAPH.tables(),
        pages=GRAPH.pages(),
    output:
        "reports/site/index.html",
    log:
        "results/logs/site.log",
    localrule: True
    conda:
        "../envs/fedrepro.yaml"
    params:
        code=GRAPH.code_of_site,
        papers=GRAPH.papers,
        methods=GRAPH.methods_of_site,
        scale=GRAPH.scale,
    shell:
        "fedrepro --log {log} site --scale {params.scale}"
