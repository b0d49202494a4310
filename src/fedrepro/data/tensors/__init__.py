"""Turn prepared data sets into the tensors of a run."""
