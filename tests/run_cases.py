"""Small runs, what damages their files, and the lock of another machine: what tests of records and of runs share."""

import contextlib
import io
import os

from bert_cases import random_params
import jax
import jax.numpy as jnp
import numpy as np
from settings_cases import settings_of

from experiments import main as main_lib
from experiments.pipeline import distance, downstream, pretraining, trial as trial_lib
from experiments.pipeline.job import FrozenModel, Job
from experiments.records import failures, files, results, trials
from experiments.runtime import locks
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
from hmm_jax.models.model import ExactModel
from hmm_jax.models.pretraining import TrainState
from hmm_jax.tuning.tasks import labelled

QUIET = Reporter(is_quiet=True)
# Flags of small runs, which share what they compile.
CHEAP = (
  '--config.pretrained=',
  f'--config.compilation_cache={os.environ["JAX_COMPILATION_CACHE_DIR"]}',
)
# The name of the process of `lock_elsewhere`.
OTHER = 'process 42 on node7'


def exact_settings(**changes):
  """A trial of one record, the head on the exact model, at each of three sizes."""
  asked = dict(num_states=(4, 6, 8), tasks_per_trial=1, models=('exact',), methods=('head',))
  return settings_of('smoke', **asked | changes)


def pretraining_settings(**changes):
  """8 steps, two a call, of the smallest BERT."""
  tiny = dict(corpus__num_documents=4, corpus__document_length=32, corpus__chunk_length=8)
  tiny |= dict(bert__width=8, bert__ffn_width=8, pretrain__optimizer='adamw', pretrain__num_steps=8)
  tiny |= dict(pretrain__warmup_steps=2, pretrain__steps_per_call=2)
  return settings_of('smoke', **tiny | dict(pretrain__checkpoint_every=2, pretrain__measure_every=2) | changes)


def job_on(hmm, mu, method, name='exact', **texts):
  """A job on the exact model of an HMM with fields of `downstream`, whose label is if the score by mu is below 0."""
  fields = {f'downstream__{field}': value for field, value in texts.items()}
  settings = settings_of('smoke', hmm__num_tokens=hmm.num_tokens, masks__number=2, **fields)
  trial = Trial(settings, Point(hmm.num_states), 0)
  keys = trial.keys()
  tasks = downstream.draw(trial.settings, hmm, keys.downstream, keys.tasks)
  task = labelled(np.array([mu, [0] * hmm.num_states]), tasks.label_probs(tasks.inputs))
  frozen = FrozenModel(name, ExactModel(hmm.num_tokens), hmm, hmm)
  return Job(trial, frozen, method, [0], tasks._replace(tasks=[task, task]), QUIET)


def stand_in_training(monkeypatch, settings, disturbed=lambda state, losses: (state, losses), measure=None):
  """directory -> the parameters that a pretraining leaves there, and its number of calls, each of two steps.

  A step adds 1/2 to the parameters of a random BERT; `disturbed` changes what a call returns.
  """
  calls, params = [], random_params(settings.bert_module())

  def call(state):
    calls.append(None)
    moved = jax.tree.map(lambda leaf: leaf + 1, state.params)
    return disturbed(TrainState(state.step + 2, moved, state.opt_state), jnp.ones(2))

  def pretrain(directory):
    fresh = TrainState(jnp.int32(0), jax.tree.map(jnp.asarray, params), {'moment': jnp.ones(2)})
    monkeypatch.setattr(pretraining, 'program', lambda *_: (lambda _: fresh, jax.random.key(0), lambda: call))
    monkeypatch.setattr(distance, 'measure', measure or (lambda *_: {'kl_at_mask': 0.5}))
    calls.clear()
    planned = pretraining.planned(settings, None, jax.random.key(0))
    return pretraining.pretrained_params(pretraining.home(settings, planned, directory), QUIET), len(calls)

  return pretrain


def any_tokens(*_):
  """The corpus of `pretraining_settings`, which no HMM has made."""
  return np.random.default_rng(0).integers(10, size=(16, 8), dtype=np.uint8)


def run_command(*arguments):
  """The exit code, standard output and standard error of a command line."""
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    code = main_lib.main(['main', *arguments])
  return code, out.getvalue(), err.getvalue()


def finished_command(*arguments):
  """The output of a command line that must succeed."""
  code, out, err = run_command(*arguments)
  assert code == 0, err
  return out


def records_of(workdir):
  """The records of a run, without their machines."""
  return [row | {'environment': ''} for row in results.load(workdir)]


def made(workdir):
  """The records without their machines, and the digest of each file of tuned arrays."""
  arrays = {str(path.relative_to(workdir)): files.digest(path) for path in workdir.glob('trials/*/*.npz')}
  return records_of(workdir), arrays


def add_record(folder, model='exact', method='head', tasks=(0,), accuracy=0.5):
  """Write records of a trial without tuning anything."""
  outcome = [trials.TunedTask(task, {'head': np.arange(3.0)}, {'accuracy': accuracy}) for task in tasks]
  with locks.held(folder.directory, QUIET):
    trials.add(folder, model, method, outcome, {'kl_at_mask': 0.0})


def add_failure(directory, text):
  """Write the failure of a unit."""
  with locks.held(directory, QUIET):
    failures.write(directory, ValueError(text))


def run_trial(folder):
  """Make the missing records of a trial."""
  with locks.held(folder.directory, QUIET):
    trial_lib.run(folder, folder.missing(QUIET), QUIET)


def lock_elsewhere(directory, process=42, host='node7'):
  """Replace any lock by that of a process on another machine, or on a given one; return its path."""
  path = directory / locks.NAME
  directory.mkdir(parents=True, exist_ok=True)
  path.unlink(missing_ok=True)
  path.write_text(f'filelock/2\npid={process}\nhost={host}\nmode=lease\ntoken=theirs\nduration={locks.LEASE}\n')
  return path


def flip(path):
  """Change one bit in the middle of a file."""
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)


def cut(path):
  """Cut off the end of a file."""
  os.truncate(path, path.stat().st_size - 9)
