"""The Python API for notebooks and scripts, ``import fedrepro as fr``."""
