"""The names of the package, and what importing it imports."""

import copy
import importlib.metadata
import importlib.util
import pkgutil
import runpy
import subprocess
import sys

import jax
import numpy as np
import pytest

import experiments
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
  assert not hasattr(hj, 'qqqqq')


@pytest.mark.parametrize(
  'guessed, meant',
  [
    ('viterbi', 'hmm_jax.most_likely_states'),
    ('smoother', 'hmm_jax.forward_backward'),
    ('log_prob', 'hmm_jax.forward_backward'),
    ('pretrain_bert', 'hmm_jax.pretrain'),
    ('prompt_tuning', 'hmm_jax.tune'),
    ('run_with_cache', 'hmm_jax.activations'),
    ('save_pretrained', 'hmm_jax.save'),
    ('from_pretrained', 'hmm_jax.load'),
    ('get_peft_model', 'hmm_jax.tune'),
    ('predict_proba', 'hmm_jax.forward_backward'),
    ('posteriers', 'hmm_jax.Posterior'),
  ],
)
def test_a_guessed_name_is_answered_with_ours(guessed, meant):
  """As a name of the package, and as an attribute of a value, whose own names are said."""
  for value in (hj, hj.processes.mess3(), hj.ExactModel(3)):
    with pytest.raises(AttributeError, match=rf'did you mean .*\b{meant}\b'):
      getattr(value, guessed)
  with pytest.raises(AttributeError, match='it has .*transition_matrix'):
    hj.processes.mess3().transitions  # noqa: B018


def test_help_with_names_hides_no_error_of_a_property(monkeypatch):
  """Tools ask for private names, which are looked up nowhere; an attribute that a property lacks is named."""
  monkeypatch.setattr(hj.HMM, 'broken', property(lambda hmm: hmm.params.weight), raising=False)
  with pytest.raises(AttributeError, match='params'):
    hj.processes.mess3().broken  # noqa: B018
  assert copy.deepcopy(hj.ExactModel(3)) == hj.ExactModel(3)


def test_a_parameter_that_was_guessed_is_answered_with_the_names_of_all():
  """A TypeError of Python names the guess alone."""
  with pytest.raises(TypeError, match='num_symbols.*num_tokens'):
    hj.random_hmm(jax.random.key(0), num_states=3, num_symbols=4)
  with pytest.raises(TypeError, match=r'num_steps.*\bsteps\b'):
    hj.pretrain(hj.processes.mess3(), 0, num_steps=3)
  with pytest.raises(TypeError, match='num_texts.*num_train'):
    hj.draw_task(hj.processes.mess3(), 0, num_texts=3)


@pytest.mark.slow
def test_importing_the_package_is_light():
  """Flax, Optax and the slow parts of SciPy come with what needs them."""
  subprocess.run([sys.executable, '-c', LIGHT], check=True)


def test_a_missing_extra_is_named(monkeypatch):
  """That of pictures, and that of the suite, which `experiments` looks for when it is imported."""
  monkeypatch.setitem(sys.modules, 'matplotlib.pyplot', None)
  with pytest.raises(ModuleNotFoundError, match='extra `plots`'):
    hj.plots.simplex(np.eye(3))
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: name != 'pandas' or None)
  with pytest.raises(ModuleNotFoundError, match=r'experiments needs pandas: pip install .*\[suite\]'):
    runpy.run_path(experiments.__file__)
