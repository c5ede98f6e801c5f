"""The paper's Example 4.1: the posterior of the memory word by word."""

from typing import Any

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.tables import Table, table
from experiments.settings.fields import require, users_program
from experiments.studies.settings import ExampleSettings
from experiments.studies.study import in_parts, Row, Study
import hmm_jax
from hmm_jax.distributions import example_4_1
from hmm_jax.distributions.memory_hmm import cell_probs


def _posterior(settings: ExampleSettings) -> tuple[jax.Array, hmm_jax.MemoryPosterior]:
  """The tokens of the sentence and the posterior; raises SettingsError if the example cannot generate it."""
  hmm, vocabulary = example_4_1.cow_in_the_pasture()
  sentence = settings.sentence
  valid = f'one that the example can generate, such as {example_4_1.SENTENCE!r}'
  with users_program('sentence', sentence, valid):
    tokens = example_4_1.encode(sentence, vocabulary)
    likelihoods = hmm.joint_emission_matrix.T[tokens]
    posterior = hmm_jax.memory_forward_backward(hmm, likelihoods)
  require(jnp.isfinite(posterior.marginal_loglik), 'sentence', sentence, valid)
  return tokens, posterior


def _words(settings: ExampleSettings, *_: Any) -> list[Row]:
  """A record for each word of the sentence."""
  hmm, vocabulary = example_4_1.cow_in_the_pasture()
  tokens, posterior = _posterior(settings)
  cells_TxNxM = cell_probs(hmm, posterior.joint.filtered_probs).tolist()
  reads_TxN = posterior.smoothed_probs @ jax.nn.one_hot(hmm.cell_index, hmm.num_cells)
  rows: list[Row] = []
  for token, cells, reads in zip(tokens, cells_TxNxM, reads_TxN.tolist()):
    row: Row = {
      'position': len(rows),
      'word': vocabulary.words[token],
      'posterior': {},
      'reads': dict(zip(vocabulary.cells, reads)),
    }
    for cell, values, probs in zip(vocabulary.cells, vocabulary.values, cells):
      row['posterior'][cell] = dict(zip(values, probs))
    rows.append(row)
  return rows


def _tables(records: pd.DataFrame, settings: ExampleSettings) -> dict[str, Table]:
  """The `sentence` word by word."""
  posterior = pd.json_normalize(list(records['posterior']), sep='\n')
  reads = pd.DataFrame(list(records['reads'])).add_prefix('reads\n')
  frame = posterior.join(reads).map('{:.2f}'.format)
  frame.insert(0, 'word', records['word'])
  title = f'{settings.sentence} P[value of a cell | words so far]; reads: P[word reads the cell | all words]'
  return {'sentence': table(title, frame, num_texts=1)}


@figures_lib.styled
def _figures(records: pd.DataFrame, settings: ExampleSettings) -> dict[str, Figure]:
  """A panel for each cell: lines for the posterior of its values, over bars of P[the word reads this cell]."""
  cells = records['reads'][0]
  figure, panels = figures_lib.panels(settings.figure, len(cells), columns=1, sharex=True)
  for axes, cell in zip(panels, cells):
    posterior = pd.DataFrame(list(records['posterior'].str[cell]))
    axes.plot(posterior, label=posterior.columns)
    axes.bar(
      records.index,
      records['reads'].str[cell],
      color='0.85',
      label=f'P[word reads {cell}]',
    )
    axes.set(ylim=(-0.04, 1.04), ylabel='probability')
    axes.legend(title=cell, loc='center left', bbox_to_anchor=(1, 0.5))
  axes.set_xticks(records.index, records['word'], rotation=60)
  axes.set_xlabel('words in order; each point is the posterior after its word')
  figures_lib.set_title(figure, records, 'Exact posterior of the memory, word by word')
  return {'sentence': figure}


STUDY = Study(in_parts(lambda _: {'words': _words}), _tables, _figures, lambda settings, _: _posterior(settings))
