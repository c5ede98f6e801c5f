"""Models, heads and labels of the user's own are tuned like any other, and verified."""

import dataclasses

import jax
import pytest
from run_cases import exact_settings, finished_command, QUIET

from experiments.own import code
from experiments.pipeline import checks, sweep, verify
from experiments.records import load
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
from hmm_jax.distributions.processes import mess3
from hmm_jax.models.model import at_positions, ExactModel, MaskedLM
from hmm_jax.tuning.heads import Linear

SETTINGS = exact_settings(num_states=(4,), models=('own', 'exact'), model='mine:build')
METHODS = dict(methods=('head', 'own_head'), own_head='mine:head')


BOTH = dataclasses.replace(SETTINGS, **METHODS)


@pytest.mark.slow
def test_a_model_and_a_head_of_ones_own_are_tuned(tmp_path):
  """A copy of the exact model and the linear head has their numbers."""
  build = lambda hmm, key: (ExactModel(10), hmm)
  own = {'mine:build': code.Function(build, 'one'), 'mine:head': code.Function(Linear, 'one')}
  sweep.run([BOTH], tmp_path, QUIET, own=own)
  records = load(tmp_path).set_index(['model', 'method'])
  numbers = records.select_dtypes('number')
  assert len(numbers) == 4
  for pair in numbers.index:
    assert numbers.loc[pair].equals(numbers.loc['exact', 'head'])


def test_a_changed_file_changes_only_its_own_ids():
  def ids(**digests):
    trial = Trial(BOTH, Point(4), 0, {field: code.Function(None, digest) for field, digest in digests.items()})
    return {(model, method, trial.fit_id(model, method)) for model in BOTH.models for method in BOTH.methods}

  first = ids(model='one', own_head='one')
  assert {model for model, *_ in first - ids(model='another', own_head='one')} == {'own'}
  assert {method for _, method, _ in first - ids(model='one', own_head='another')} == {'own_head'}


def test_list_shows_the_ids_that_the_file_gives(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(tmp_path)
  shown = set()
  for label in range(2):
    (tmp_path / 'mine_listed.py').write_text(f'def label(texts, posteriors): return {label}')
    shown.add(finished_command('--config=prompt_vs_head:smoke', '--config.label=mine_listed:label', '--list'))
  assert len(shown) == 2


def _parity(texts, posteriors):
  """Of the two likeliest states of four."""
  assert (texts[:, 0] == 10).all() and texts.shape[1] == 9
  return posteriors.argsort()[:, -2:].sum(1) % 2


LABELS = exact_settings(
  num_states=(4,),
  label='mine:parity',
  tasks_at_a_time=1,
  methods=('head', 'prompt', 'head_best', 'quadratic', 'neighbours', 'table'),
)


@pytest.mark.slow
def test_labels_of_ones_own_meet_every_reader_and_are_verified(tmp_path):
  """Their records lack the fields of mu. A changed function is another trial, no function the trial without one."""
  own = {'mine:parity': code.Function(_parity, 'one')}
  checks.check_draws(LABELS, own)
  sweep.run([LABELS], tmp_path, QUIET, own=own)
  records = load(tmp_path).set_index('method')
  assert {*records.index} == {*LABELS.methods} and not records['near_tie_share'].any()
  assert records[['smallest_margin', 'head_size']].isna().all(axis=None)
  majority = records['majority_accuracy'].iloc[0]
  assert majority < 0.9 and records.loc[['quadratic', 'neighbours'], 'accuracy'].min() > majority
  verify.run([LABELS], tmp_path, '', QUIET, own)
  trials = [Trial(LABELS, Point(4), 0, {'label': code.Function(_parity, digest)}) for digest in ('one', 'another')]
  plain, earlier = Trial(dataclasses.replace(LABELS, label=''), Point(4), 0), trials[0].id
  assert len({earlier, trials[1].id, plain.id}) == 3 and earlier == records['trial_id'].iloc[0]
  assert len({trial.pretraining_id for trial in (*trials, plain)}) == 1


class Embeddings(ExactModel):
  """Predicts its embeddings."""

  def predict(self, params, embeddings, positions=None):
    return at_positions(embeddings, positions)


class FirstText(ExactModel):
  """Predicts by the first text for all."""

  def predict(self, params, embeddings, positions=None):
    return at_positions(jax.nn.softmax(embeddings[:1].sum(1) + 0 * embeddings), positions)


class Undecoded(FirstText):
  decode = MaskedLM.decode


def _interrupts(*_):
  raise KeyboardInterrupt


TEN = dataclasses.replace(SETTINGS, num_states=(10,))
SHIFTED = dataclasses.replace(TEN, methods=('shift',))


@pytest.mark.parametrize(
  ('field', 'settings', 'call', 'says'),
  [
    ('label', LABELS, lambda texts, _: texts[:3, 1], r'is \(3,\); valid is \[\d+\]'),
    ('label', LABELS, lambda texts, _: texts[:, 1], 'labels has the entry [2-9]; valid are integers from 0 to 1'),
    ('label', LABELS, lambda texts, _: texts[:, 0] * 0, 'gives all training inputs one label'),
    ('model', SETTINGS, lambda hmm, _: (Embeddings(10), hmm), r'\(10, 1, 4\); valid is \[10, 1, 10\]'),
    ('model', TEN, lambda hmm, _: (Embeddings(10), hmm), 'valid is 1'),
    ('model', TEN, lambda hmm, _: (FirstText(10), hmm), 'no other text'),
    ('model', dataclasses.replace(TEN, model=''), _interrupts, 'MODULE:FUNCTION'),
    ('model', TEN, _interrupts, 'which raised KeyboardInterrupt'),
    ('model', SHIFTED, lambda hmm, _: (Embeddings(10), hmm), 'are `decode` of'),
    ('model', SHIFTED, lambda hmm, _: (Undecoded(10), hmm), 'overrides decode'),
    ('own_head', exact_settings(**METHODS), lambda _: Linear(3), r'is \(2, 3\); valid is \[2, 2\]'),
  ],
)
def test_a_function_that_does_not_serve_is_refused(field, settings, call, says):
  """By what it gives, before anything is trained; also if it interrupts."""
  name = getattr(settings, field)
  with pytest.raises(SettingsError, match=f"^{field} is '{name}'.*{says}"):
    checks.check_draws(settings, {name or 'other': code.Function(call, '')})


@pytest.mark.slow
def test_a_model_is_tried_on_each_size_or_on_the_given_process():
  tried = []
  call = lambda hmm, _: (ExactModel(hmm.num_tokens), tried.append(hmm.num_states) or hmm)
  own = {'mine:build': code.Function(call, ''), 'mess3-0123456789ab': mess3()._asdict()}
  checks.check_draws(dataclasses.replace(SETTINGS, num_states=(4, 6)), own)
  checks.check_draws(dataclasses.replace(SETTINGS, num_states=(3,), distribution='mess3-0123456789ab'), own)
  assert tried == [4, 6, 3]


def test_a_process_that_does_not_fit_in_memory_is_refused_in_a_sentence(monkeypatch):
  def exhausts(*_):
    raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory. At 0x7f')

  monkeypatch.setattr(checks.trial_lib, 'tasks_of', exhausts)
  with pytest.raises(SettingsError, match=r'^hmm is .* \(at \|H\|=4: RESOURCE_EXHAUSTED: Out of memory'):
    checks.check_draws(exact_settings(num_states=(4,)))
