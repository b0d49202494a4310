# In a clone, its own code; elsewhere, the release that these rules belong to. pip adds what conda-forge has
# no recent version of.
if test -f src/fedrepro/__init__.py; then
    pip install -e .
else
    pip install fedrepro==0.2.0
fi
