# In a clone, its own code; elsewhere, what FEDREPRO names: a package of our name in an index may be a
# stranger's. pip adds what conda-forge has no recent version of.
if test -f src/fedrepro/__init__.py; then
    pip install -e .
else
    pip install "${FEDREPRO:?expected the path or URL of a wheel or a clone of fedrepro}"
fi
