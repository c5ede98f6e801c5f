"""pip install -c constraints.txt -e '.[test,parity]'; metadata and dependencies are in pyproject.toml."""

import sys

if not (3, 11) <= sys.version_info < (3, 15):
  version = '.'.join(map(str, sys.version_info[:3]))
  sys.exit(f'hmm-jax runs on Python 3.11 to 3.14, for which jaxlib has wheels; this is Python {version}')

import setuptools

setuptools.setup()
