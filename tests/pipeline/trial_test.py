"""The records of a trial: which of them are asked for, and what stands beside them of where they came from."""

import hashlib
import json

from forked import run_on_devices
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import memory_cells, prompt_vs_head
from experiments.pipeline import trial as trial_lib
from experiments.records import environment, trial_records
from experiments.records.trial_records import Tuned
from experiments.settings.grid import Point
from experiments.studies import registry
from hmm_jax.sampling import sample_corpus
from hmm_jax.tasks import draw_task_weights
from hmm_jax.theory.theorems import assumptions

pytestmark = pytest.mark.usefixtures('without_optimisation')


def _trial(workdir, **changes):
  config = prompt_vs_head.get_config('smoke')
  config.update_from_flattened_dict(changes)
  return trial_lib.Trial(registry.from_config(config), Point(4), 0, workdir)


def test_assumption_4_2_fails_where_several_cells_are_tuned(tmp_path):
  """Of what `memory_cells` draws, the 18 columns of W span |X| = 10 dimensions, those of no state apart from others."""
  settings = registry.from_config(memory_cells.get_config())
  trial = trial_lib.Trial(settings, Point(6, 3, 2), 0, tmp_path)
  drawn = trial_lib.draw_distribution(settings, trial.point, trial.keys().distribution)
  columns = np.asarray(drawn.emission_matrix, np.float64).reshape(18, 10)
  assert np.linalg.matrix_rank(columns, 1e-9) == 10
  for cell in range(2):
    finding = assumptions.recoverable_hidden_states(drawn, cell, assumptions.Thresholds(support=0.0, rank=1e-9))
    assert not finding.holds and not finding.witness['recoverable_states'].size


def test_the_distance_at_the_mask_is_measured_on_test_inputs(tmp_path):
  """On the first of them, as many as settings name."""
  trial = _trial(tmp_path, **{'measure.num_inputs': 3})
  distribution, downstream = trial_lib.draw(trial)
  _, at_mask, _ = trial_lib._ideals(trial.settings, distribution, downstream, trial.keys().measure)
  test = downstream.inputs[downstream.splits['test']]
  np.testing.assert_array_equal(at_mask.inputs, test[:3])
  assert not (test[:3] == downstream.inputs[:3]).all()


def _add(trial, model, method, tasks):
  outcome = [Tuned(task, {'head': np.zeros(2)}, {'accuracy': 0.5}) for task in tasks]
  trial_records.add(trial, model, method, outcome, {'kl_at_mask': 0.0})


def _triples(records):
  return [(record['task'], record['model'], record['method']) for record in records]


def test_records_are_those_that_are_asked_for(tmp_path):
  """A method, model or task that is no longer asked for stays on file, is not reported, and is not missing."""
  for model in ('bert', 'exact'):
    for method in ('head', 'prompt'):
      _add(_trial(tmp_path), model, method, (0, 1))
  assert len(_trial(tmp_path).records()) == 8
  fewer = _trial(tmp_path, models=('exact',), methods=('head', 'probe'), tasks_per_trial=1)
  assert _triples(fewer.records()) == [(0, 'exact', 'head')]
  assert fewer.missing() == {(0, 'exact', 'probe')}
  assert len(_trial(tmp_path).records()) == 8


def test_methods_are_asked_for_on_the_models_that_they_are_of(tmp_path):
  """What is fitted to the exact G alone is not missing on BERT, nor fine-tuning on the exact model."""
  trial = _trial(tmp_path, methods=('head_best', 'oracle_prompt', 'finetune', 'head_converged'), tasks_per_trial=1)
  of_exact = {(0, 'exact', method) for method in ('head_best', 'oracle_prompt', 'head_converged')}
  assert trial.missing() == trial.wanted() == of_exact | {(0, 'bert', 'finetune'), (0, 'bert', 'head_converged')}


def test_another_fit_is_another_record(tmp_path):
  """Records of another ridge stay on file beside their arrays and are not reported; those of schedules stay what they
  are, those from before there were other fits as well."""
  asked = dict(models=('exact',), methods=('head', 'head_converged'), tasks_per_trial=1)
  one, other = (_trial(tmp_path, **asked, **{'converged.ridge': ridge}) for ridge in (1e-6, 1e-3))
  for method in one.methods:
    _add(one, 'exact', method, (0,))
  assert one.id == other.id and other.missing() == {(0, 'exact', 'head_converged')}
  _add(other, 'exact', 'head_converged', (0,))
  assert not one.missing() and not other.missing()
  assert {record['fit_id'] for record in other.records()} == {'', other.settings.fit_id('head_converged')}
  assert len(one.records_path.read_text().splitlines()) == 3 == len(list((one.directory / 'tuned').iterdir()))
  rows = [json.loads(line) for line in one.records_path.read_text().splitlines()]
  (one.directory / 'manifest.json').unlink()
  for row in rows:
    if row['method'] == 'head':
      del row['fit_id']
  one.records_path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  assert not one.missing()


def test_what_two_runs_made_is_there_once(tmp_path):
  """As where the same trial was run twice at the same time."""
  for tasks in ((0, 1), (1,)):
    _add(_trial(tmp_path), 'bert', 'head', tasks)
  assert _triples(_trial(tmp_path).records()) == [(0, 'bert', 'head'), (1, 'bert', 'head')]


def test_records_keep_the_commit_that_made_them(tmp_path, monkeypatch):
  """What a later commit adds to a trial is said to be of that commit, and what was there is left as it was."""
  trial = _trial(tmp_path)
  _add(trial, 'exact', 'head', (0, 1))
  first = trial.environment_path.read_bytes()
  monkeypatch.setattr(environment, '_process', lambda: {'commit': 'another', 'packages': {}})
  _add(trial, 'exact', 'head', (2,))
  _add(trial, 'exact', 'prompt', (0,))
  assert trial.environment_path.read_bytes().startswith(first)
  earlier, *later = [json.loads(line) for line in trial.environment_path.read_text().splitlines()]
  assert earlier['tasks'] == [0, 1] and earlier['commit'] != 'another'
  assert [(line['method'], line['tasks'], line['commit']) for line in later] == [
    ('head', [2], 'another'),
    ('prompt', [0], 'another'),
  ]
  assert all(line['trial_id'] == trial.id for line in later)


def test_a_kill_leaves_no_record_without_its_provenance(tmp_path, monkeypatch):
  """The environment is written first: where the records are not, the run says them again."""
  trial = _trial(tmp_path)

  def fail(*_):
    raise KeyboardInterrupt

  with monkeypatch.context() as patched, np.testing.assert_raises(KeyboardInterrupt):
    patched.setattr(trial_records, 'save_arrays', fail)
    _add(trial, 'exact', 'head', (0,))
  assert not trial.records_path.exists() and len(trial.environment_path.read_text().splitlines()) == 1
  _add(trial, 'exact', 'head', (0,))
  assert len(trial.records()) == 1 and len(trial.environment_path.read_text().splitlines()) == 2


# Of seed 0. Where one of these changes, the ids of models and trials name other bits than they did: then
# `_PRETRAINING_VERSION` is raised. Values are rounded, or reduced to signs, to what unlike CPUs agree on.
_DRAWN = {
  'generator': '1263fb0f6c8f52c3',
  'documents': '8bea94cd290269d9',
  'task weights': '1f0f988d08bd314f',
  'parameters': '9ff9b1afb3500c24',
}


def test_seed_0_draws_what_it_has_always_drawn(tmp_path):
  """A new JAX or flax that draws other documents, tasks or parameters from the same keys is seen here."""
  trial = _trial(tmp_path)
  settings, keys = trial.settings, trial.keys()
  hmm = trial_lib.draw_distribution(settings, trial.point, keys.distribution)
  params = jax.jit(settings.bert_module().init)(keys.pretraining, jnp.zeros((1, 1), jnp.int32))
  drawn = {
    'generator': jax.random.bits(keys.pretraining, (64,)),
    'documents': np.asarray(sample_corpus(keys.downstream, hmm, 4, 256), np.uint8),
    'task weights': np.int32(np.round(100 * draw_task_weights(keys.tasks, 10))),
    'parameters': np.concatenate([np.int8(np.sign(leaf)).ravel() for leaf in jax.tree.leaves(params)]),
  }
  assert {name: hashlib.sha256(np.asarray(x).tobytes()).hexdigest()[:16] for name, x in drawn.items()} == _DRAWN


def test_all_that_is_exact_stays_on_its_device(tmp_path):
  """Where the exact device is not the first, as on a TPU's host, texts and tuning of the exact model are on it."""
  run_on_devices(
    2,
    f"""
import pathlib
import jax
import rich.console
from configs import prompt_vs_head
from experiments.pipeline import trial
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point
from experiments.studies import registry
from hmm_jax import sharding, tuning

exact = jax.devices()[1]
sharding.exact_device = lambda: exact
seen = []

def watched(function):
  def run(*args, **kwargs):
    result = function(*args, **kwargs)
    seen.append({{d for leaf in jax.tree.leaves(result) for d in leaf.devices()}})
    return result
  return run

tuning.tune_epoch = watched(tuning.tune_epoch)
trial.draw_distribution = watched(trial.draw_distribution)
options = prompt_vs_head.get_config('smoke')
options.update(num_states=(3,), models=('exact',), methods=('head',))
settings = registry.from_config(options)
reporter = Reporter(rich.console.Console(quiet=True))
trial.run(trial.Trial(settings, Point(3), 0, pathlib.Path({str(tmp_path)!r})), reporter)
assert len(seen) >= 2 and all(devices == {{exact}} for devices in seen), seen
""",
  )
