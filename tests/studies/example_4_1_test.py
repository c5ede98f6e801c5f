"""The run of Example 4.1: its records say what the posteriors are, its table what the config expects."""

import numpy as np
from oracles import cells_of, log_space_posterior, rows_of
import pytest
from settings_cases import settings_of

from experiments.records import load
from experiments.settings.fields import SettingsError
from experiments.studies.example_4_1 import STUDY
from hmm_jax.distributions import example_4_1

pytestmark = pytest.mark.usefixtures('without_optimisation')


@pytest.mark.slow
def test_records_and_table_hold_the_posterior_after_each_word(reduced_run):
  """That of each cell given the words so far, and that of the cell which a word reads given all words."""
  hmm, vocabulary = example_4_1.cow_in_the_pasture()
  tokens = example_4_1.encode(example_4_1.SENTENCE, vocabulary)
  posterior = log_space_posterior(hmm, rows_of(hmm, tokens))
  cells = cells_of(hmm.memory_probs.shape, posterior.filtered_probs)
  states = posterior.smoothed_probs.reshape(len(tokens), -1, hmm.num_states).sum(1)
  reads = states @ np.eye(hmm.num_cells)[hmm.cell_index]

  records = load(reduced_run('example_4_1', 'smoke'))
  assert example_4_1.as_text(list(records['word'])) == example_4_1.SENTENCE
  for record in records.itertuples():
    recorded = [list(probs.values()) for probs in record.posterior.values()]
    np.testing.assert_allclose(recorded, cells[record.position], atol=1e-6)
    np.testing.assert_allclose(list(record.reads.values()), reads[record.position], atol=1e-6)

  frame = STUDY.tables(records, settings_of('smoke', 'example_4_1'))['sentence'].frame
  held = ['subject\ncow', 'location\npasture', 'sentiment\nhappy']
  assert frame[held].values[-1].tolist() == ['0.88', '0.88', '0.82']


@pytest.mark.parametrize('sentence', ['The horse in the pasture.', 'Cow the grass.', ''])
def test_an_impossible_sentence_is_refused(sentence):
  with pytest.raises(SettingsError, match='^sentence is'):
    STUDY.check(settings_of('smoke', 'example_4_1', sentence=sentence))
