"""What a method is, and how a round of one is played. Knows no method by name."""
