"""From run directories to tables, verdicts and the site; reads and never computes."""
