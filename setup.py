"""pip install -c constraints.txt -e '.[test,parity]'; metadata and dependencies are in pyproject.toml."""

import setuptools

setuptools.setup()
