"""The run of Example 4.1: its records say what the posteriors are."""

import numpy as np
from oracles import float64, log_space_posterior
import pytest
from run_cases import finished_command
from settings_cases import settings_of

from experiments.analysis import statistics
from experiments.records import load, results
from experiments.settings.fields import SettingsError
from experiments.studies import example_4_1 as experiment
from hmm_jax.distributions import example_4_1

pytestmark = pytest.mark.usefixtures('without_optimisation')


def _settings(**changes):
  return settings_of('smoke', 'example_4_1', **changes)


@pytest.mark.slow
def test_records_hold_the_posterior_after_each_word(reduced_run):
  """Each is the posterior of the memory given the words up to it, and the probabilities of reading a cell sum to 1."""
  hmm, vocabulary = example_4_1.cow_in_the_pasture()
  records = load(reduced_run('example_4_1', 'smoke'))
  assert set(records['document']) == {0, 1, 2}
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


@pytest.mark.slow
def test_a_second_seed_stands_beside_the_first(tmp_path):
  """Records, tables and figures of both, those of this run first; and the report names a command for each."""
  command = ['--config=example_4_1:smoke', f'--workdir={tmp_path}', '--config.num_documents=1']
  finished_command(*command)
  first = results.load(tmp_path)
  said = finished_command(*command, '--config.seed=1')
  assert 'seed 0 (here 1); tables, figures and results.jsonl show these too' in said
  assert results.load(tmp_path)[-len(first) :] == first
  seeds = load(tmp_path)['seed'].unique().tolist()
  tables, report = ((tmp_path / name).read_text() for name in ('table.txt', 'report.html'))
  assert seeds == [1, 0] and all(tables.count(f'holds; seed={seed}') == 1 for seed in seeds)
  assert (tmp_path / 'sentence_2.png').exists() and report.count('<figure') == 4
  assert report.count('--config=example_4_1:smoke') == 2
