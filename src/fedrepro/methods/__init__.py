"""What compositions are made of: methods, wrappers and, in `server`, server optimizers."""
