"""Units of work: which is made when, beside another process, and what becomes of the others if one fails."""

import pytest
from run_cases import lock_elsewhere, QUIET

from experiments.pipeline import queue
from experiments.records import failures, files
from experiments.runtime import distributed, exit_status, locks, signals
from hmm_jax._support import nan_guard

NAMES = 'a', 'b', 'c'


@pytest.fixture
def units(tmp_path):
  """Three units and the names of those that were made, in order; `errors` are raised as one is made."""
  made, errors = [], {}

  def unit(name):
    directory = tmp_path / name

    def make(missing, reporter):
      made.append(name)
      if name in errors:
        raise errors[name]
      locks.check_held(directory)
      files.write_whole(directory / 'record', 'ours')

    is_missing = lambda _: [] if (directory / 'record').exists() else ['record']
    return queue.Unit(directory, name, is_missing, make)

  return [unit(name) for name in NAMES], made, errors


def _write_theirs(directory):
  files.write_whole(directory / 'record', 'theirs')


@pytest.mark.parametrize(
  ('ends', 'order'), [(_write_theirs, ['a', 'c']), (lambda _: None, ['a', 'c', 'b'])], ids=['done', 'killed']
)
def test_a_unit_that_another_process_works_on_comes_last(units, monkeypatch, ends, order):
  """It is waited for, and made here only if the other one has not finished it."""
  some, made, _ = units
  path = lock_elsewhere(some[1].directory)
  monkeypatch.setattr(locks.time, 'sleep', lambda _: (ends(path.parent), path.unlink()))
  assert not queue.fill(some, QUIET) and made == order


def test_a_unit_that_was_taken_over_is_waited_for(units, monkeypatch):
  """Its process slept, and another one has it: that one's record counts, and it is no failure."""
  some, made, _ = units
  path = some[1].directory / locks.NAME
  monkeypatch.setattr(locks.time, 'sleep', lambda _: (_write_theirs(path.parent), path.unlink()))
  make = some[1].make
  some[1] = some[1]._replace(make=lambda *words: (lock_elsewhere(path.parent), make(*words)))
  assert not queue.fill(some, QUIET) and made == ['a', 'b', 'c']
  assert (path.parent / 'record').read_text() == 'theirs'


@pytest.mark.parametrize(
  ('error', 'sentence', 'code'),
  [
    (MemoryError('no room\n  at 0x1'), 'MemoryError: no room at 0x1', exit_status.FAILED),
    (nan_guard.Diverged('the loss is inf'), 'Diverged: the loss is inf', exit_status.DIVERGED),
    # A user's own model may do this.
    (KeyboardInterrupt(), 'KeyboardInterrupt:', exit_status.FAILED),
  ],
  ids=['MemoryError', 'Diverged', 'KeyboardInterrupt'],
)
def test_a_unit_that_fails_stops_no_other(units, error, sentence, code):
  """It is kept with its traceback, tried again by another run, and then forgotten."""
  some, made, errors = units
  errors['b'] = error
  assert queue.fill(some, QUIET) == {f'b failed: {sentence}': code} and made == ['a', 'b', 'c']
  kept = failures.read(some[1].directory)
  assert kept['error'] == sentence and 'raise errors[' in kept['traceback']
  errors.clear()
  assert not queue.fill(some, QUIET) and made == ['a', 'b', 'c', 'b']
  assert failures.read(some[1].directory) is None


@pytest.mark.parametrize(('codes', 'status'), [((3, 3), 3), ((2, 2), 2), ((2, 3), 1)])
def test_the_exit_status_is_that_of_every_failure(codes, status):
  """The status that all failures share, or else that of any failure."""
  assert queue.UnitsFailed({str(index): code for index, code in enumerate(codes)}, None).status == status


@pytest.mark.parametrize(('error', 'processes'), [(signals.Stopped(15), 1), (RuntimeError('alone'), 2)])
def test_a_stopped_run_begins_no_other_unit(units, monkeypatch, error, processes):
  """By a signal, or an error that only one of several processes meets."""
  some, made, errors = units
  errors['b'] = error
  monkeypatch.setattr(distributed, 'num_processes', lambda: processes)
  monkeypatch.setattr(distributed, 'gathered', lambda value: [value] * processes)
  with pytest.raises(type(error)):
    queue.fill(some, QUIET)
  assert made == ['a', 'b'] and failures.read(some[1].directory) is None
