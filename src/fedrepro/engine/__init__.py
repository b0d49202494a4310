"""The method interface, and how a round is played. Contains no particular method."""
