"""The names of the package, and what importing it imports."""

import importlib.metadata
import pkgutil
import subprocess
import sys

import pytest

import hmm_jax as hj

LIGHT = """
import sys
import hmm_jax as hj
hj.sample, hj.token_probs
assert not {'flax', 'optax', 'pandas', 'scipy.stats'} & set(sys.modules)
"""


def test_every_public_name_can_be_imported():
  """The names of `__all__`, submodules without an import, and the version of the installed package."""
  assert all(getattr(hj, name) is not None and name in dir(hj) for name in hj.__all__)
  assert {found.name for found in pkgutil.iter_modules(hj.__path__)} <= {*hj.__all__, '_support'}
  assert hj.__version__ == importlib.metadata.version('hmm-jax')
  with pytest.raises(AttributeError, match='pretraned'):
    hj.pretraned  # noqa: B018


@pytest.mark.slow
def test_importing_the_package_is_light():
  """Flax, Optax and the slow parts of SciPy come with what needs them."""
  subprocess.run([sys.executable, '-c', LIGHT], check=True)
