"""The study of degradation at smoke scale: its records, and its figure of them."""

from experiments.studies.degradation.figure import draw
from experiments.studies.degradation.problems import Condition
import jax
import numpy as np
from oracles import log_space_conditional, rows_of
import pandas as pd
import pytest
from settings_cases import settings_of

from experiments.analysis.tables import select
from experiments.records import load
from experiments.settings.fields import SettingsError
from experiments.studies import pages
from experiments.studies.degradation import comparisons, models, problems

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]

SMALL = load(pages.ROOT / 'docs' / 'results' / 'degradation' / 'small')


def _settings(**changes):
  return settings_of('smoke', 'degradation', **changes)


@pytest.mark.parametrize(
  ('field', 'value'),
  [
    ('num_states_3_3', 9),
    ('singular_values', (0.1,)),
    ('bert.model.max_positions', 7),
  ],
)
def test_settings_that_do_not_fit_each_other_are_refused(field, value):
  with pytest.raises(SettingsError, match=f'^{field} is .*; valid is'):
    _settings(**{field: value})


def test_every_condition_has_a_row_for_each_hmm(reduced_run):
  """Errors of the KL that was asked for, or less for a short context; all methods of the theorem, and the controls."""
  settings = _settings()
  records = pd.concat([load(reduced_run('degradation', scale)) for scale in ('smoke', 'bert')])
  for theorem, kind in (('3.3', 'singular_value'), ('3.6', 'leak')):
    of_theorem = select(records, theorem=theorem, part=f'exact-{theorem}', kind='task').to_dict('records')
    found = {(r['damage'], r['error'], r['level']) for r in of_theorem}
    assert found == {('', 'noise', 0.0), ('', 'noise', 0.01), ('', 'short_context', 0.001), (kind, 'noise', 0.01)}
    for record in of_theorem:
      assert record['kl'] == pytest.approx(record['level'], rel=0.01, abs=1e-6) or record['error'] == 'short_context'
      assert record['kl'] <= 1.01 * record['level'] + 1e-6 and record['gradient_norm'] < 1e-6
      assert {*comparisons.METHODS} - {*record['accuracy']} == ({'converged_built'} if theorem == '3.3' else set())
      if record['damage'] == '' and record['level'] == 0:
        assert record['accuracy']['construction'] == record['accuracy']['weighted'] == 1
  assert len(select(records, part='bert-3.3')) == settings.num_hmms * len(settings.bert.checkpoints)
  for model in ('exact', 'bert'):
    controls = select(records, part=f'{model}-3.6', kind='control')
    assert list(controls['hmm']) == [0, 1] and controls['kl'].isna().all()
  masses = pd.DataFrame(list(select(records, part='exact-3.6')['mass'])).stack().dropna()
  assert masses.between(0, 1 + 1e-6).all()


@pytest.mark.parametrize('theorem', problems.THEOREMS)
def test_problems_are_balanced_in_every_version_and_their_g_is_exact(theorem):
  """Labels, G and G after the theorem's prompt agree with an oracle in log space; the control weighs no state of H*."""
  settings, key = _settings(), jax.random.key(5)
  for problem in problems.draw(settings, theorem, key).values():
    assert np.bincount(problem.labels).max() <= settings.largest_majority * len(problem.labels)
    hmm, prompt = problem.hmm, problem.built_prompt
    rows = rows_of(hmm, problem.inputs)
    ideal = problem.ideal_after(None)
    np.testing.assert_allclose(ideal, log_space_conditional(hmm, rows)[:, 0], rtol=1e-6, atol=1e-9)
    if theorem == '3.6':
      before = np.broadcast_to(prompt, (len(rows), *prompt.shape))
      expected = log_space_conditional(hmm, np.concatenate([before, rows], axis=1))[:, 1]
      np.testing.assert_allclose(problem.ideal_after(prompt), expected, rtol=1e-6, atol=1e-9)
      mass = problem.states[:, problem.inverted_states].sum(-1)
      np.testing.assert_allclose(ideal @ problem.reader, mass)
      control = problems.about_other_states(settings, problem, key)
      assert not control.task_weights[:, problem.inverted_states].any()
      assert (np.abs(control.task_weights).sum(0) > 0).sum() == len(problem.inverted_states)


def test_a_task_that_cannot_be_balanced_is_refused():
  with pytest.raises(SettingsError, match='^max_draws is 1; valid is more: no draw for Theorem 3.3'):
    problems.draw(_settings(max_draws=1, largest_majority=0.501), '3.3', jax.random.key(0))


def test_a_mean_kl_is_that_of_its_definition():
  """Nats, averaged over inputs; a token that the ideal model excludes counts nothing."""
  ideal, probs = np.array([[0.5, 0.5, 0], [1, 0, 0]]), np.array([[0.25, 0.5, 0.25], [0.5, 0.5, 0]])
  assert models.kl(ideal, probs) == pytest.approx((0.5 * np.log(2) + np.log(2)) / 2)


def test_the_figure_draws_the_records():
  """Its lines are the recorded means."""
  figure = draw(SMALL, _settings().figure)['degradation']
  (line,) = [line for line in figure.axes[0].lines if line.get_label() == "theorem's construction"]
  first = select(SMALL, **{name: SMALL.iloc[0][name] for name in Condition._fields})
  assert line.get_ydata()[0] == pytest.approx(100 * first['accuracy'].str['construction'].mean())
