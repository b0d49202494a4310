"""One file per method; a file's name is the method's name."""
