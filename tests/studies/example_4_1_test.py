"""The run of Example 4.1: its records say what the posteriors are, its table what the config expects."""

import numpy as np
from oracles import cells_of, log_space_posterior, rows_of
import pytest

from experiments.records import load
from hmm_jax.distributions import example_4_1


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
  assert list(records['word']) == [vocabulary.words[token] for token in tokens]
  for record in records.itertuples():
    recorded = [list(probs.values()) for probs in record.posterior.values()]
    np.testing.assert_allclose(recorded, cells[record.position], atol=1e-6)
    np.testing.assert_allclose(list(record.reads.values()), reads[record.position], atol=1e-6)
