"""Models of the entries of config/datasets.yaml."""
