"""What serves one paper only: a package for each, of which the rest knows nothing."""
