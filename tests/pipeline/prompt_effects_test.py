"""Prompts move the exact model as far as an oracle in numpy says, and no prefix further than delta (S1)."""

from conftest import dirichlet_hmm
import jax
import numpy as np
from oracles import log_space_conditional, rows_of
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.pipeline import prompt_effects
from experiments.pipeline.downstream import Downstream
from experiments.pipeline.job import Fitted, FrozenModel, Job
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
import hmm_jax as hj
from hmm_jax.models.shifted import Shifted
from hmm_jax.tuning.tuner import Prompt, Tuner

V, P = 3, 2
EXACT = hj.ExactModel(V, causal=True)
DRAWS = np.random.default_rng(0)
HMM = jax.tree.map(np.float32, dirichlet_hmm(DRAWS, 4, V))
INPUTS = np.array([[0, 1, V], [2, 2, V], [1, 0, V], [1, 2, V]])


def measured(model, prompt, tuned):
  trial, tuner = Trial(settings_of('smoke', 'next_token'), Point(4), 0), Tuner(model, hj.Linear(2, position=-1), prompt)
  downstream = Downstream(INPUTS, [], {'test': slice(None)}, None, None)
  job = Job(trial, FrozenModel('exact', model, HMM, HMM), 'prompt', [], downstream, QUIET, tuner)
  return prompt_effects.measured(job, INPUTS, [Fitted({'prompt': rows}, None, None, {}) for rows in tuned])


def test_effects_are_distances_of_predictions_and_no_prefix_exceeds_its_bound():
  tuned, rows = DRAWS.random((2, P, 4)), rows_of(HMM, INPUTS)
  for prompt, fields in zip(tuned, measured(EXACT, Prompt(P, 0.5), tuned), strict=True):
    prompted = np.concatenate([np.tile(prompt, (4, 1, 1)), rows], axis=1)
    before, after = (log_space_conditional(HMM, x)[:, -1] for x in (rows, prompted))
    assert fields['tv_moved'] == pytest.approx(np.abs(after - before).sum() / 8, abs=1e-5)
    of_prompts = [fields[name] for name in ('tv_moved', 'tv_moved_by_text', 'tv_moved_by_random')]
    assert 0 < min(of_prompts) and max(of_prompts) <= fields['tv_movable'] == fields['forgetting'][-1]


def test_a_shift_of_beliefs_moves_every_law_alike():
  """By what it emits; no text is a shift, and no bound for prefixes is one for shifts."""
  shift = DRAWS.random((1, 1, 4))
  (fields,) = measured(Shifted(EXACT), Prompt(1, 0.5, place=-1), shift)
  assert fields.pop('tv_moved') == pytest.approx(np.abs(shift @ HMM.emission_matrix).sum() / 2, abs=1e-5)
  assert fields.pop('tv_moved_by_random') > 0 and set(fields.values()) == {None}
