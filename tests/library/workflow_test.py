"""The front of the library: pretraining and tasks."""

from conftest import assert_same_bits
from hmm_cases import float32_hmm
import jax
import numpy as np
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.pipeline import pretraining
import hmm_jax as hj
from hmm_jax import defaults
from hmm_jax.distributions.processes import even, mess3

pytestmark = [pytest.mark.usefixtures('without_optimisation'), pytest.mark.slow]

CHAIN = jax.tree.map(np.asarray, float32_hmm(0, 3, 4))
TASK = hj.DownstreamTask(np.eye(2, 3), jax.random.key(1), length=5, num_train=48, num_test=30)


def test_the_library_pretrains_as_the_suite_does(monkeypatch):
  """The parameters are those of the experiments at the small scale, bit by bit."""
  monkeypatch.setattr(defaults, 'WARMUP_STEPS', 1)
  monkeypatch.setattr(defaults, 'STEPS_PER_CALL', 2)
  monkeypatch.setitem(defaults.CORPUS, 'num_documents', 4)
  hmm, key, reports = mess3(), jax.random.key(0), []
  found = hj.pretrain(hmm, key, steps=4, report=lambda *report: reports.append(report)).params
  fields = dict(num_steps=4, steps_per_call=2, warmup_steps=1, checkpoint_every=4, measure_every=4)
  changes = {f'pretrain__{name}': value for name, value in fields.items()}
  settings = settings_of('small', corpus__num_documents=4, hmm__num_tokens=3, **changes)
  ((_, params),) = pretraining.params_along(pretraining.planned(settings, hmm, key), (4,), QUIET)
  assert_same_bits(jax.device_get(found), params)
  _, (step, values) = reports
  assert step == 4 and 0.8 < values['train_loss'] < 4 and 0 < values['kl_at_mask'] < 3 and 0 < values['tv_at_mask'] < 1


@pytest.mark.parametrize('hidden', [0, -1])
@pytest.mark.parametrize('process', [CHAIN, even()])
def test_a_function_of_labels_sees_beliefs(process, hidden):
  """Of a process of matrices those over its states, as `hj.beliefs` has them, not of pairs of a token and a state.

  The arrays that it gives are the same examples; a token that is not masked is.
  """
  seen = []
  label = lambda texts, states: seen.append(states) or texts[:, 2] % 2
  inputs, labels = TASK._replace(task_weights=label, hidden=hidden).examples(process)
  np.testing.assert_allclose(seen[0], hj.beliefs(process, inputs)[:, hidden], atol=1e-12)
  is_masked = inputs == process.num_tokens
  assert is_masked[:, hidden].all() and set(labels) == {0, 1}
  again = hj.DownstreamTask.from_labels(np.where(is_masked, 0, inputs), labels, hidden=hidden).examples(process)
  jax.tree.map(np.testing.assert_array_equal, again, (inputs, labels))
