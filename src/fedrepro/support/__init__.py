"""What everything else stands on: errors, files, typed YAML, random streams."""
