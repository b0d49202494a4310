"""Parts of compositions: methods, wrappers and, in `server`, server optimizers."""
