"""Server optimizers: one file each, whose name is the optimizer's."""
