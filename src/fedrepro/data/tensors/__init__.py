"""From a prepared data set to the tensors of a run."""
