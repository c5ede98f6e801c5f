"""The benchmark: how it measures, its products, its peers, what a run records, and the tables of records."""

import dataclasses
import io
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.console
from run_cases import QUIET
from settings_cases import settings_of

from configs import benchmark
from experiments.records import environment, results
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies import registry
from experiments.studies.benchmark import accelerator, inference, measure, sampling, study, training
from experiments.studies.benchmark.measure import Prepared
from hmm_jax import forward_backward, HMM, random_hmm, sample_corpus, token_likelihoods

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]


def _without(patched, *missing):
  """A machine on which nothing can import these, nor what has imported them before."""
  for name in missing:
    patched.setitem(sys.modules, name, None)
  for name in ('hugging_face', 'loops'):
    patched.delitem(sys.modules, f'experiments.studies.benchmark.{name}', raising=False)
    patched.delattr(f'experiments.studies.benchmark.{name}', raising=False)


def _lasting(seconds, calls, name):
  """Prepare a contender whose calls take these seconds in turn, by a clock that stands still else."""

  def call():
    calls.append(name)
    _lasting.clock += seconds[min(calls.count(name) - 1, len(seconds) - 1)]

  return lambda: Prepared(call, units=2)


def test_contenders_are_measured_by_turns_after_a_call_of_each_that_does_not_count(monkeypatch):
  """What is on record is the seconds of one unit in each round; the first calls, of another length, are not."""
  calls, _lasting.clock = [], 0.0
  monkeypatch.setattr(time, 'perf_counter', lambda: _lasting.clock)
  monkeypatch.setattr(measure, '_growth', lambda call: None)
  contenders = {'ours': _lasting((100, 2, 4, 6), calls, 'ours'), 'peer': _lasting((100, 8, 8, 12), calls, 'peer')}
  ours, peer = measure.alternate(contenders, 3)
  assert calls == ['ours', 'peer'] * 4
  assert ours['seconds'] == [1, 2, 3] and peer['seconds'] == [4, 4, 6]


def test_what_cannot_be_measured_is_a_line_that_says_why(monkeypatch):
  """A missing peer, a failure, a result that is not finite and a lack of time leave the others their measurements."""
  _without(monkeypatch, 'dynamax')

  def failing():
    raise RuntimeError('no\nkernel')

  def missing():
    import dynamax

    return dynamax

  # Two calls before the rounds, for the warm-up and the memory, and one round, which does not count.
  left = iter(range(3))
  contenders = {
    'ours': lambda: Prepared(lambda: 1.0, error=lambda result: result - 1),
    'missing': missing,
    'failing': failing,
    'not finite': lambda: Prepared(lambda: 1.0, error=lambda result: float('nan')),
    'failing later': lambda: Prepared(lambda: next(left)),
  }
  ours, *others = measure.alternate(contenders, 2)
  assert len(ours['seconds']) == 2 and ours['error'] == 0 and not ours['note']
  notes = [other['note'] for other in others]
  assert notes == [
    'dynamax not installed',
    'failed: RuntimeError: no kernel',
    'failed: ValueError: result is not finite',
    'failed: StopIteration:',
  ]
  assert not any(other['seconds'] for other in others)
  late, *_ = measure.alternate(contenders, 2, deadline=time.monotonic() - 1)
  assert late['note'] == 'skipped: `minutes` had passed' and not late['seconds']


def test_half_precision_is_compared_where_steps_move_the_weights(monkeypatch):
  """At one rate from the first step on, whatever the warm-up. Beside it the GPU's part has a step by every road."""
  settings, seen = _settings().gpu, []
  monkeypatch.setattr(training.Step, 'ours', lambda step, **changes: seen.append(step.pretrain) or Prepared(lambda: 0))
  (_, roads), (_, losses) = accelerator.cases(settings, jax.random.key(0))
  assert list(roads) == [
    'ours',
    'ours, without dropout',
    'ours, cuDNN attention, without dropout',
    'ours, deterministic',
    'ours, scanned layers',
    'Hugging Face, torch.compile, SDPA',
    'its matrix products alone',
  ]
  assert list(losses) == ['ours, float32', 'ours, bfloat16', 'ours, bfloat16, cuDNN attention']
  for prepare in losses.values():
    prepare()
  moving = dataclasses.replace(settings.pretrain, learning_rate=1e-3, warmup_steps=0)
  assert seen == [moving] * 3 and settings.pretrain.warmup_steps


def test_the_reference_of_inference_is_ours():
  """Two implementations that share no line agree."""
  hmm = random_hmm(jax.random.key(0), 4, 6)
  tokens = sample_corpus(jax.random.key(1), hmm, 5, 12)
  rows = token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool))
  expected = inference.smoothed_in_float64(hmm, rows)
  np.testing.assert_allclose(forward_backward(hmm, rows).smoothed_probs, expected, atol=1e-6)


def test_shares_of_tokens_are_means_over_positions():
  """A chain that alternates shows its two tokens equally often in an even length, the first once more in an odd one."""
  hmm = HMM(np.array([1.0, 0]), np.array([[0, 1.0], [1.0, 0]]), np.eye(2))
  np.testing.assert_allclose(sampling.exact_shares(hmm, 4), [1 / 2, 1 / 2])
  np.testing.assert_allclose(sampling.exact_shares(hmm, 3), [2 / 3, 1 / 3])


def _settings(**changes):
  return settings_of('smoke', 'benchmark', **changes)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """The workdir of a finished run on a machine that has dynamax and hmmlearn alone, and what it printed."""
  workdir, reporter = tmp_path_factory.mktemp('finished'), Reporter(rich.console.Console(file=io.StringIO(), width=120))
  with pytest.MonkeyPatch.context() as patched:
    _without(patched, 'torch', 'transformers')
    study.STUDY.run(_settings(parts=('inference', 'sampling', 'training')), workdir, reporter)
  study.STUDY.show(_settings(), workdir, reporter)
  return workdir, reporter.console.file.getvalue()


def test_a_run_without_peers_measures_all_else(finished):
  """Every part has its cases; all of ours is measured, and each peer that is missing is a line."""
  workdir, printed = finished
  records = results.load(workdir)
  assert {record['part'] for record in records} == {'inference', 'sampling', 'training'}
  for record in records:
    missing = [name for name in ('torch', 'transformers') if name in record['note']]
    assert len(record['seconds']) == (0 if missing else 2), record
    assert bool(missing) == record['way'].startswith('Hugging Face')
  (alone,) = [record for record in records if record['way'] == 'its matrix products alone']
  # Besides products, the conversions of their factors and the additions that read the results.
  assert alone['product_flops'] <= alone['flops'] <= 1.1 * alone['product_flops']
  table = (workdir / 'table.txt').read_text()
  assert max(map(len, table.splitlines())) <= 120 and table.strip() in printed
  (made,) = environment.load(workdir, records).values()
  assert made['peers']['torch'] is None and made['peers']['dynamax']


def test_errors_are_those_of_float32(finished):
  """Against float64 every posterior is right to float32, and ours with float64 in and out to float64."""
  for record in results.load(finished[0]):
    if record['part'] == 'inference' and record['seconds']:
      most = 1e-12 if 'float64' in record['way'] else 1e-5
      assert record['error'] <= most, record


def test_a_run_that_is_killed_leaves_what_it_measured(tmp_path, monkeypatch):
  """The record is whole after each case."""

  def killed(contenders, repeats, deadline):
    if contenders == 'second':
      raise KeyboardInterrupt
    return [{'way': 'ours'}]

  monkeypatch.setattr(sampling, 'cases', lambda settings, key: zip(('first', 'second'), ('first', 'second')))
  monkeypatch.setattr(measure, 'alternate', killed)
  with pytest.raises(KeyboardInterrupt):
    study.STUDY.run(_settings(parts=('sampling',)), tmp_path, QUIET)
  assert [record['work'] for record in results.load(tmp_path)] == ['first']


@pytest.mark.parametrize(
  ('field', 'value'), [('parts', ('cpu',)), ('training.pretrain.optimizer', 'muon'), ('sampling.num_tokens', 255)]
)
def test_what_does_not_fit_is_refused(field, value):
  config = benchmark.get_config('smoke')
  config.update_from_flattened_dict({field: value})
  with pytest.raises(SettingsError, match=f'^{field} '):
    registry.from_config(config)
