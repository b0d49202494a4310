"""The command ``fedrepro``."""
