"""A package, because a dependency of a peer has one of this name, which would come first."""
