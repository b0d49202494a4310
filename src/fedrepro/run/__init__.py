"""One run, from its configuration to a finished folder."""
