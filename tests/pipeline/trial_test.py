"""The records of a trial: which of them are asked for, and what stands beside them of where they came from."""

import hashlib

from forked import run_on_devices
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import memory_cells, prompt_vs_head
from experiments.pipeline import trial as trial_lib
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
