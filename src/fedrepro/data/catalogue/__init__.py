"""The entries of config/datasets.yaml, by kind."""
