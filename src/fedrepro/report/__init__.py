"""From run directories to tables, verdicts and the site. Nothing here is needed to train."""
