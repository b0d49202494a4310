"""The functions that the Snakefile and its rules call."""
