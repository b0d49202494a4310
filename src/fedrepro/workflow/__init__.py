"""The functions that the Snakefile calls, and cost estimates."""
