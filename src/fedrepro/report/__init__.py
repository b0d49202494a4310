"""From run folders to tables, verdicts and the site; reads results and never trains."""
