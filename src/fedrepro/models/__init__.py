"""Networks: a file for each family."""
