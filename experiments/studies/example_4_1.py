"""The paper's Example 4.1: sampled documents, and the posterior of the memory word by word."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import pandas as pd

from experiments.analysis import figures as figures_lib, statistics
from experiments.analysis.table import Table, table
from experiments.records import environment, results
from experiments.records.results import Record
from experiments.runtime import locks
from experiments.runtime.progress import Reporter
from experiments.settings.fields import require, SettingsError
from experiments.settings.groups import FigureSettings
from experiments.studies.settings import ExampleSettings
from experiments.studies.study import Study
import hmm_jax
from hmm_jax.distributions import example_4_1
from hmm_jax.distributions.memory_hmm import cell_probs

# The documents that are drawn and tabulated: the sentence of the settings is document 0, samples follow.
_SHOWN: dict[Any, str] = {0: 'sentence', 1: 'sampled_document'}
_TITLE = 'Posterior of each cell after each word, and probability given all words that the word reads the cell'


def _check(settings: ExampleSettings) -> None:
  """Raise SettingsError if the example cannot generate the sentence."""
  hmm, vocabulary = example_4_1.cow_in_the_pasture()
  try:
    tokens = example_4_1.encode(settings.sentence, vocabulary)
  except ValueError as error:
    raise SettingsError(f'sentence is {settings.sentence!r}; {error}')
  rows = hmm_jax.token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool))
  is_said = tokens.size and hmm_jax.forward_backward(hmm, rows).marginal_loglik > -jnp.inf
  valid = f'one that the example can generate, such as {example_4_1.SENTENCE!r}'
  require(bool(is_said), 'sentence', settings.sentence, valid)


def _run(settings: ExampleSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Sample the documents and record, for each word, the posterior of every cell and which cell is read."""
  hmm, vocabulary = example_4_1.cow_in_the_pasture()
  documents = [np.asarray(example_4_1.encode(settings.sentence, vocabulary))]
  memories: list[dict[str, str] | None] = [None]
  for index in range(settings.num_documents):
    key = jax.random.fold_in(jax.random.key(settings.seed), index)
    states, tokens = map(np.asarray, hmm_jax.sample(key, hmm, settings.document_length))
    # Without the last sentence if it is unfinished, unless there is no other.
    ends = np.flatnonzero(tokens == vocabulary.words.index(example_4_1.FULL_STOP))
    documents.append(tokens[: ends[-1] + 1] if ends.size else tokens)
    held = np.unravel_index(states[0] // hmm.num_states, hmm.memory_probs.shape)
    memories.append({cell: names[value] for cell, names, value in zip(vocabulary.cells, vocabulary.values, held)})
  made = environment.keep(workdir, environment.environment(jax.devices()))
  rows = _records(hmm, vocabulary, documents)
  records = [{**row, 'memory': memories[row['document']], 'environment': made} for row in rows]
  with locks.held(workdir, 'the merge of records', reporter):
    results.write(workdir, [(settings, records)])


def _records(hmm: hmm_jax.MemoryHMM, vocabulary: example_4_1.Vocabulary, documents: list[np.ndarray]) -> list[Record]:
  """A record a (document, word), and one before the first word, where the posterior is the prior."""
  # Documents are padded to one batch, since a program is compiled for each length.
  lengths = np.array([[len(tokens)] for tokens in documents])
  observed_BxT = np.arange(lengths.max()) < lengths
  tokens_BxT = np.zeros(observed_BxT.shape, np.int32)
  tokens_BxT[observed_BxT] = np.concatenate(documents)
  rows_BxTxE = hmm_jax.token_likelihoods(hmm, jnp.asarray(tokens_BxT), jnp.asarray(observed_BxT))
  posterior = hmm_jax.memory_forward_backward(hmm, rows_BxTxE)
  reads = posterior.smoothed_probs @ jax.nn.one_hot(hmm.cell_index, hmm.num_cells)
  # The prior is inserted as word 0.
  prior_NxM = cell_probs(hmm, hmm.memory_probs.reshape(-1))
  cells_BxTxNxM = np.insert(cell_probs(hmm, posterior.joint.filtered_probs), 0, prior_NxM, axis=1)
  reads_BxTxN = np.insert(reads, 0, 0, axis=1)

  named = lambda names, probs: dict(zip(names, probs.tolist()))
  return [
    {
      'document': document,
      'position': position,
      'word': word,
      'posterior': dict(zip(vocabulary.cells, map(named, vocabulary.values, cells_BxTxNxM[document, position]))),
      'reads': named(vocabulary.cells, reads_BxTxN[document, position]),
    }
    for document, tokens in enumerate(documents)
    for position, word in enumerate(['', *(vocabulary.words[token] for token in tokens)])
  ]


def tables(records: pd.DataFrame, _: Any) -> dict[str, Table]:
  """The sampled `documents`, and each of those that are shown word by word."""
  sampled, shown = list[dict[str, str]](), dict[str, Table]()
  for document, rows in records.groupby('document'):
    text = example_4_1.as_text(list(rows['word'][1:]))
    if document:
      sampled.append({'text': text, **rows['memory'].iloc[0]})
    if document in _SHOWN:
      shown[_SHOWN[document]] = table(f'{text} {_TITLE}', _cells(rows).to_dict('records'), num_texts=1)
  return {'documents': table('Sampled documents, each with what its memory holds', sampled, num_texts=4), **shown}


def _cells(rows: pd.DataFrame) -> pd.DataFrame:
  """The words of a document, the posterior of each value of each cell, and the cells that are read."""
  posterior = pd.json_normalize(list(rows['posterior']), sep='\n').map('{:.2f}'.format)
  reads = pd.DataFrame(list(rows['reads'])).add_prefix('reads\n').map(lambda prob: f'{prob:.2f}' if prob else '')
  words = rows['word'].replace('', '(prior)').reset_index(drop=True)
  return pd.concat([words, posterior, reads], axis=1)


def figures(records: pd.DataFrame, settings: ExampleSettings) -> dict[str, matplotlib.figure.Figure]:
  """The documents that are shown."""
  return {
    name: _draw(statistics.select(records, document=document), name.replace('_', ' '), settings.figure)
    for document, name in _SHOWN.items()
  }


@figures_lib.styled
def _draw(rows: pd.DataFrame, name: str, settings: FigureSettings) -> matplotlib.figure.Figure:
  """A panel per cell: a line for each value's posterior after each word, over bars of P[the word reads this cell]."""
  figure = matplotlib.figure.Figure((settings.width, settings.height), settings.dpi)
  first, positions = rows.iloc[0], rows['position']
  panels = figure.subplots(len(first['reads']), 1, sharex=True)
  for number, (axes, cell) in enumerate(zip(panels, first['reads']), 1):
    posterior = pd.DataFrame(list(rows['posterior'].str[cell]))
    axes.plot(positions, posterior, label=list(posterior))
    label = f'P[J = {number} | all words]'
    axes.bar(positions, rows['reads'].str[cell], width=0.86, color='0.85', zorder=0.5, label=label)
    axes.set(xlim=(-0.5, len(rows) - 0.5), ylim=(-0.04, 1.04), yticks=[0, 0.5, 1], ylabel='probability')
    held = f', holds {first["memory"][cell]!r}' if first['document'] else ''
    axes.set_title(f'$M_{number}$: {cell}{held}', loc='left')
    axes.legend(loc='center left', bbox_to_anchor=(1.0, 0.5))
  words = rows['word'].replace('', '(prior)')
  panels[-1].set_xticks(positions, words, rotation=60, ha='right', va='center', rotation_mode='anchor')
  panels[-1].set_xlabel('words in order; each point is the posterior after its word')
  figures_lib.set_title(figure, 'Exact posterior of the memory, word by word', rows, name)
  return figure


STUDY = Study(_run, tables, figures, _check)
