"""Compiled programs: their number, counted by JAX's own events, and their options."""

from conftest import compiling_fast, count_of_programs
from hmm_cases import float32_hmm
import jax
import jax.numpy as jnp
from memory_hmm_cases import dense_hmm
import numpy as np
import pytest
from run_cases import run_trial
from settings_cases import settings_of

from experiments.records.trials import TrialFolder
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
import hmm_jax as hj
from hmm_jax._support import compilation

pytestmark = pytest.mark.slow
HMM = float32_hmm(0, 3, 4)
MEMORY = dense_hmm(np.random.default_rng(0), 2)


@pytest.mark.parametrize('least', [0.1, 0.0])
@pytest.mark.parametrize(('function', 'hmm'), [(hj.forward_backward, HMM), (hj.cell_posterior, MEMORY)])
def test_another_number_of_texts_compiles_nothing(function, hmm, least):
  """Also where a row is impossible, so that the texts take logarithms."""
  rows = np.random.default_rng(0).uniform(0.1, 1, (9, 5, hmm.joint_initial_probs.size)).astype(np.float32)
  rows[0, 2] = least
  assert_same_program(lambda count: function(hmm, rows[:count]))


def test_another_number_of_documents_or_inputs_compiles_nothing():
  tokens = np.random.default_rng(0).integers(4, size=(9, 5))
  assert_same_program(lambda count: hj.sample_corpus(jax.random.key(0), HMM, count, 5))
  assert_same_program(lambda count: hj.token_likelihoods(HMM, tokens[:count], tokens[:count] > 0))
  assert_same_program(lambda count: hj.beliefs(HMM, tokens[:count]))


def assert_same_program(function):
  with compiling_fast():
    jax.block_until_ready(function(8))
    before = count_of_programs()
    jax.block_until_ready(function(9))
  assert count_of_programs() == before


def test_programs_are_compiled_once(tmp_path):
  """A trial of one method on the exact model compiles 16 programs, a second one of its shape nothing."""
  settings = settings_of('smoke', models=('exact',), methods=('head',))
  jax.clear_caches()
  counts = [count_of_programs()]
  with compiling_fast():
    for number in range(2):
      run_trial(TrialFolder(Trial(settings, Point(4), number), tmp_path))
      counts.append(count_of_programs())
  # Programs for single operations outside of a larger one add up: whole smoke runs had 78, and have 40.
  assert counts[0] < counts[1] == counts[2] <= counts[0] + 16


def test_options_are_for_programs_outside_of_transformations(monkeypatch):
  """JAX refuses options inside of `jax.jit`."""
  monkeypatch.setattr(compilation, '_QUICK', {'xla_no_such_option': True})
  function = compilation.quick(lambda x: jnp.sin(x).sum())
  x = jnp.arange(3.0)
  for transformed in (jax.jit, jax.grad, jax.vmap):
    transformed(function)(x)
  with pytest.raises(jax.errors.JaxRuntimeError, match='xla_no_such_option'):
    function(x)
