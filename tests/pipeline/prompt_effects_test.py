"""Prompts move the exact model as far as an oracle in numpy says, and no prefix further than delta (S1)."""

from conftest import dirichlet_hmm
import jax
import numpy as np
from oracles import log_space_conditional, rows_of
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
  hmm = jax.tree.map(np.float32, dirichlet_hmm(draws, 4, V))
  inputs, tuned = np.pad(draws.integers(0, V, (5, T - 1)), ((0, 0), (0, 1)), constant_values=V), draws.random((2, P, 4))
  trial = Trial(settings_of('smoke', 'next_token', measure__prompts=2), Point(4), 0)
  tuner = Tuner(hj.ExactModel(V, causal=True), hj.Linear(2, position=-1), Prompt(P, 0.5))
  found = prompt_effects.measured(trial, tuner, hmm, hmm, list(tuned), inputs)
  for prompt, fields in zip(tuned, found, strict=True):
    rows = rows_of(hmm, inputs)
    prompted = np.concatenate([np.tile(prompt, (5, 1, 1)), rows], axis=1)
    before, after = (log_space_conditional(hmm, x)[:, -1] for x in (rows, prompted))
    assert fields['tv_moved'] == pytest.approx(np.abs(after - before).sum() / 10, abs=1e-5)
    of_prompts = [fields[name] for name in ('tv_moved', 'tv_moved_by_text', 'tv_moved_by_random')]
    assert 0 < min(of_prompts) and max(of_prompts) <= fields['tv_movable'] == fields['forgetting'][-1]
