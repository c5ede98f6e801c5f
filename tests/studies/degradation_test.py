"""The study of degradation at smoke scale, and tables and figures of its records in docs/results."""

import jax
import numpy as np
from oracles import log_space_conditional, rows_of
import pandas as pd
import pytest
from settings_cases import settings_of

from experiments.analysis.tables import select
from experiments.records import load
from experiments.studies import degradation
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.recovery import mass_weights

pytestmark = pytest.mark.slow

SETTINGS = settings_of('smoke', 'degradation')


def test_every_condition_has_a_record_of_each_hmm(reduced_run):
  """Two HMMs for each theorem; noise has the KL that was asked for, and without it the construction is right.

  Predictions behind the start of a prompt, behind its end and without one differ.
  """
  records = load(reduced_run('degradation', 'smoke'))
  own = select(records, kind='task')
  counts = own.groupby(['theorem', 'damage', 'level']).size()
  assert counts.tolist() == 6 * [2]
  np.testing.assert_allclose(own['kl'], own['level'], rtol=0.01, atol=1e-6)
  exact = select(own, level=0.0)['accuracy']
  assert (exact.str['construction'] == 1).all()
  masses = pd.DataFrame(list(select(records, theorem='3.6')['mass']))
  assert [*masses] == ['without', 'start', 'trained'] and (masses.nunique(axis=1) == 3).all()
  controls = select(records, kind='control')
  assert controls['theorem'].tolist() == ['3.6', '3.6']


def test_a_theorem_with_a_prompt_is_not_constructed_on_bert(reduced_run):
  """A BERT at its last step, and for Theorem 3.3 at each of two."""
  records = select(load(reduced_run('degradation', 'bert')), kind='task')
  constructed = records['accuracy'].str['construction'].notna()
  assert constructed.groupby(records['theorem']).agg(['size', 'sum']).to_numpy().tolist() == [[4, 4], [2, 0]]


def test_the_g_of_theorem_3_6_and_its_control_are_exact():
  """Before and after the theorem's prompt, and its mass on H*; the control weighs no state of H*."""
  drawn = degradation.draw(SETTINGS, '3.6', jax.random.key(5))
  for problem in drawn.values():
    hmm, prompt, essential = problem.hmm, problem.construction['prompt'], problem.inverted_states
    assert np.bincount(problem.labels).max() <= SETTINGS.largest_majority * len(problem.labels)
    rows = rows_of(hmm, problem.inputs)
    ideal = problem.ideal_after(None)
    np.testing.assert_allclose(ideal, log_space_conditional(hmm, rows)[:, 0], atol=1e-9)
    before = np.tile(prompt, (len(rows), 1, 1))
    expected = log_space_conditional(hmm, np.concatenate([before, rows], axis=1))[:, 1]
    np.testing.assert_allclose(problem.ideal_after(prompt), expected, atol=1e-9)
    reader = mass_weights(hmm, essential, Thresholds(0.0, SETTINGS.rank_threshold))
    np.testing.assert_allclose(ideal @ reader, problem.states[:, essential].sum(-1))
    control = degradation.about_other_states(SETTINGS, problem)
    assert not control.task_weights[:, essential].any()
