"""The run of Example 4.1: records, table and figure say what the posteriors are."""

import numpy as np
from oracles import float64, log_space_posterior
import pytest
from run_cases import finished_study
from settings_cases import settings_of

from experiments.analysis import statistics
from experiments.records import load
from experiments.settings.fields import SettingsError
from experiments.studies import example_4_1 as experiment
from hmm_jax import example_4_1

pytestmark = pytest.mark.usefixtures('without_optimisation')


def _settings(**changes):
  return settings_of('smoke', 'example_4_1', **changes)


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """The workdir of a finished run, its settings and what it printed."""
  workdir, settings = tmp_path_factory.mktemp('finished'), _settings(num_documents=2)
  return workdir, settings, finished_study(experiment.STUDY, settings, workdir)


def test_the_tables_have_every_document_and_every_word_of_two(finished):
  """Each sampled document as a text with its memory; of the sentence, a row for each of its words."""
  workdir, settings, printed = finished
  records = load(workdir)
  tables = experiment.tables(records, settings)
  assert list(tables) == ['documents', 'sentence', 'sampled_document']
  assert 'happily' in printed and (workdir / 'sentence.png').exists()
  rows = statistics.select(records, document=1)
  assert tables['documents'].frame.iloc[0].tolist() == [
    example_4_1.as_text(list(rows['word'][1:])),
    *rows['memory'].iloc[0].values(),
  ]
  (row,) = [row for row in tables['sentence'].frame.values.tolist() if row[0] == 'happily']
  (record,) = statistics.select(records, document=0, word='happily').itertuples()
  numbers = [f'{prob:.2f}' for probs in record.posterior.values() for prob in probs.values()]
  assert row == ['happily', *numbers, '', '', '1.00']


def test_records_hold_the_posterior_after_each_word(finished):
  """Each is the posterior of the memory given the words up to it, and the probabilities of reading a cell sum to 1."""
  hmm, vocabulary = example_4_1.cow_in_the_pasture()
  records = load(finished[0])
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
def test_a_sentence_that_cannot_be_said_is_refused(sentence):
  with pytest.raises(SettingsError, match=f'^sentence is {sentence!r}'):
    experiment.STUDY.check(_settings(sentence=sentence))
