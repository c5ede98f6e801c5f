"""The run of Example 4.1: its records say what the posteriors are."""

import numpy as np
from oracles import float64, log_space_posterior
import pytest
from run_cases import finished_study
from settings_cases import settings_of

from experiments.analysis import statistics
from experiments.records import load
from experiments.settings.fields import SettingsError
from experiments.studies import example_4_1 as experiment
from hmm_jax.distributions import example_4_1

pytestmark = pytest.mark.usefixtures('without_optimisation')


def _settings(**changes):
  return settings_of('smoke', 'example_4_1', **changes)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """The workdir of a finished run and what it printed."""
  workdir = tmp_path_factory.mktemp('finished')
  return workdir, finished_study(experiment.STUDY, _settings(num_documents=2), workdir)


@pytest.mark.slow
def test_records_hold_the_posterior_after_each_word(finished):
  """Each is the posterior of the memory given the words up to it, and the probabilities of reading a cell sum to 1."""
  hmm, vocabulary = example_4_1.cow_in_the_pasture()
  records = load(finished[0])
  assert set(records['document']) == {0, 1, 2}
  assert 'happily' in finished[1] and (finished[0] / 'sentence.png').exists()
  for document in (0, 1):
    rows = statistics.select(records, document=document)
    tokens = example_4_1.encode(' '.join(rows['word']), vocabulary)
    assert len(tokens) == len(rows) - 1
    seen = np.tri(len(rows), len(tokens), -1, dtype=bool)
    likelihoods = np.asarray(float64(hmm).joint_emission_matrix, np.float64).T[np.asarray(tokens)]
    joint = log_space_posterior(hmm, np.where(seen[..., None], likelihoods, 1)).smoothed_probs[:, 0]
    memory = joint.reshape(len(rows), *hmm.memory_probs.shape, -1).sum(-1)
    expected = np.stack([memory.sum((2, 3)), memory.sum((1, 3)), memory.sum((1, 2))], axis=1)
    recorded = [[list(probs.values()) for probs in posterior.values()] for posterior in rows['posterior']]
    np.testing.assert_allclose(recorded, expected, atol=1e-6)
    np.testing.assert_allclose([sum(reads.values()) for reads in rows['reads']], [0] + [1] * len(tokens), atol=1e-6)
  # The unfinished last sentence of a sampled document is left out.
  assert records.groupby('document')['word'].last().tolist() == ['.', '.', '.']


@pytest.mark.parametrize('sentence', ['The horse in the pasture.', 'Cow the grass.', ''])
def test_an_impossible_sentence_is_refused(sentence):
  with pytest.raises(SettingsError, match=f'^sentence is {sentence!r}'):
    experiment.STUDY.check(_settings(sentence=sentence))
