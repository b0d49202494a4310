pip install --no-deps --no-build-isolation -e .
