"""How far prompts move the exact model, against a recursion in numpy, and S1: no prefix moves it by more than delta."""

import numpy as np
import pytest
from settings_cases import settings_of

from experiments.pipeline import prompt_effects
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
import hmm_jax as hj
from hmm_jax.tuning.tuner import Prompt, Tuner

pytestmark = pytest.mark.usefixtures('without_optimisation')

V, T, P = 3, 3, 2


def test_effects_are_distances_of_predictions_and_no_prefix_exceeds_its_bound():
  draws = np.random.default_rng(0)
  law = lambda *shape: draws.dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)
  hmm, inputs = hj.HMM(law(4), law(4, 4), law(4, V)), draws.integers(0, V, (5, T))
  inputs[:, -1] = V
  tuned = draws.random((2, P, 4)).astype(np.float32)
  trial = Trial(settings_of('smoke', 'next_token', measure__prompts=2), Point(4), 0)
  tuner = Tuner(hj.ExactModel(V, causal=True), hj.Linear(2, position=-1), Prompt(P, 0.5))
  found = prompt_effects.measured(trial, tuner, hmm, hmm, list(tuned), inputs)

  def predicted(rows):
    state = np.float64(hmm.initial_probs)
    for row in rows:
      state = (state * row) @ hmm.transition_matrix
    return state @ hmm.emission_matrix / state.sum()

  for prompt, fields in zip(tuned, found, strict=True):
    texts = [hmm.emission_matrix.T[text[:-1]] for text in inputs]
    moved = [np.abs(predicted([*prompt, *rows]) - predicted(rows)).sum() / 2 for rows in texts]
    assert fields['tv_moved'] == pytest.approx(np.mean(moved), abs=1e-5)
    assert 0 < max(fields[name] for name in ('tv_moved', 'tv_moved_by_text', 'tv_moved_by_random'))
    for name in ('tv_moved', 'tv_moved_by_text', 'tv_moved_by_random'):
      assert fields[name] <= fields['tv_movable'] + 1e-6
    assert len(fields['forgetting']) == T and fields['forgetting'][-1] == fields['tv_movable']
  assert found[0]['tv_moved'] != found[1]['tv_moved']
