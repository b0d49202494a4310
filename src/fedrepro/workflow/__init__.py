"""What the Snakefile asks."""
