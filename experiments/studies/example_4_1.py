"""The paper's Example 4.1: sampled documents, and what each word tells of the memory."""

import pathlib

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import rich.box
import rich.table

from experiments.analysis import figures, report, statistics
from experiments.records import environment, files, results
from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.settings.groups import FigureSettings
from experiments.studies.settings import ExampleSettings
import hmm_jax
from hmm_jax import example_4_1
from hmm_jax.memory_hmm import cell_probs

# The documents that are drawn and tabulated: the sentence of the settings is document 0, samples follow.
_SHOWN = {0: 'sentence', 1: 'sampled_document'}

# The name of what each cell holds.
Memory = dict[str, str]


def check(settings: ExampleSettings) -> None:
  """Raises SettingsError where the example cannot say the sentence."""
  hmm, vocabulary = example_4_1.cow_in_the_pasture()
  try:
    tokens = example_4_1.encode(settings.sentence, vocabulary)
  except ValueError as error:
    raise SettingsError(f'sentence is {settings.sentence!r}; {error}')
  rows = hmm_jax.token_likelihoods(hmm, tokens, jnp.ones(tokens.shape, bool))
  if not tokens.size or hmm_jax.forward_backward(hmm, rows).marginal_loglik == -jnp.inf:
    valid = f'one that the example can say, such as {example_4_1.SENTENCE!r}'
    raise SettingsError(f'sentence is {settings.sentence!r}; valid is {valid}')


def run(settings: ExampleSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Samples the documents and records, for each word, the posterior of every cell and which cell is read."""
  hmm, vocabulary = example_4_1.cow_in_the_pasture()
  documents = [np.asarray(example_4_1.encode(settings.sentence, vocabulary))]
  memories: list[Memory | None] = [None]
  for index in range(settings.num_documents):
    key = jax.random.fold_in(jax.random.key(settings.seed), index)
    states, tokens = map(np.asarray, hmm_jax.sample(key, hmm, settings.document_length))
    documents.append(_whole_sentences(tokens, vocabulary))
    held = np.unravel_index(states[0] // hmm.num_states, hmm.memory_probs.shape)
    memories.append({cell: names[value] for cell, names, value in zip(vocabulary.cells, vocabulary.values, held)})
  rows = _records(hmm, vocabulary, documents, memories)
  made = {'environment': environment.keep(workdir, environment.environment(jax.devices()))}
  results.write(workdir, settings, [row | made for row in rows])


def _whole_sentences(tokens: np.ndarray, vocabulary: example_4_1.Vocabulary) -> np.ndarray:
  """Without the last sentence where it is unfinished, unless there is no other."""
  ends = np.flatnonzero(tokens == vocabulary.words.index(example_4_1.FULL_STOP))
  return tokens[: ends[-1] + 1] if ends.size else tokens


def _records(
  hmm: hmm_jax.MemoryHMM, vocabulary: example_4_1.Vocabulary, documents: list[np.ndarray], memories: list[Memory | None]
) -> list[Record]:
  """A record a (document, word), and one before the first word, where the posterior is the prior."""
  lengths = np.array([len(tokens) for tokens in documents])
  tokens_BxT = jnp.array([np.pad(tokens, (0, lengths.max() - len(tokens))) for tokens in documents])
  observed_BxT = jnp.arange(lengths.max()) < lengths[:, None]
  posterior = hmm_jax.memory_forward_backward(hmm, hmm_jax.token_likelihoods(hmm, tokens_BxT, observed_BxT))
  prior_NxM = cell_probs(hmm, hmm.memory_probs.reshape(-1))
  after_BxTxNxM = np.asarray(cell_probs(hmm, posterior.joint.filtered_probs))
  reads_BxTxN = posterior.smoothed_probs @ jax.nn.one_hot(hmm.cell_index, hmm.num_cells)

  named = lambda names, probs: dict(zip(names, np.asarray(probs).tolist()))
  rows = []
  for document, tokens in enumerate(documents):
    words = ['', *(vocabulary.words[token] for token in tokens)]
    cells = [prior_NxM, *after_BxTxNxM[document]]
    reads = [np.zeros(hmm.num_cells), *reads_BxTxN[document]]
    for position, (word, cells_NxM, reads_N) in enumerate(zip(words, cells, reads)):
      of_cells = dict(zip(vocabulary.cells, map(named, vocabulary.values, cells_NxM)))
      row = {'document': document, 'memory': memories[document], 'position': position, 'word': word}
      rows.append(row | {'posterior': of_cells, 'reads': named(vocabulary.cells, reads_N)})
  return rows


def show(settings: ExampleSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the documents on record, and draws the posteriors of the sentence and of the first sampled document."""
  records = results.load(workdir)
  documents = sorted({record['document'] for record in records})
  reporter.say('Sampled documents, each with what its memory holds:')
  for document in documents[1:]:
    rows = statistics.select(records, document=document)
    reporter.say(f'  {_text(rows)}  [{", ".join(rows[0]["memory"].values())}]')
  written = [f'records: {workdir / results.FILE_NAME}']
  for document, name in _SHOWN.items():
    rows = statistics.select(records, document=document)
    text = report.as_text(_table(rows))
    reporter.show(f'\n{_text(rows)}\n\n{text.rstrip()}')
    files.write_whole(workdir / f'{name}.txt', text)
    written += [f'table: {workdir / name}.txt', figures.saved(draw(rows, settings.figure), workdir / name)]
  reporter.say('\n' + '\n'.join(written))


def _text(rows: list[Record]) -> str:
  return example_4_1.as_text([row['word'] for row in rows[1:]])


def _table(rows: list[Record]) -> rich.table.Table:
  """A row per word: the posterior of each cell after it, and the cell it reads given all words."""
  posterior = rows[0]['posterior']
  title = 'Posterior of each cell after each word; the probability, given all words, that the word reads a cell'
  out = rich.table.Table(title=title, box=rich.box.SIMPLE)
  out.add_column('word', no_wrap=True)
  for cell, probs in posterior.items():
    for index, value in enumerate(probs):
      out.add_column(f'{"" if index else cell}\n{value}', justify='right', no_wrap=True)
  for index, cell in enumerate(posterior):
    out.add_column(f'{"" if index else "reads"}\n{cell}', justify='right', no_wrap=True)
  for row in rows:
    cells = [f'{prob:.2f}' for probs in row['posterior'].values() for prob in probs.values()]
    reads = [f'{prob:.2f}' if prob else '' for prob in row['reads'].values()]
    out.add_row(row['word'] or '(prior)', *cells, *reads)
  return out


@figures.styled
def draw(rows: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """A panel per cell: a line for each value's posterior after each word, over bars of P[the word reads this cell]."""
  figure = matplotlib.figure.Figure(figsize=(settings.width, settings.height), dpi=settings.dpi)
  cells, memory = list(rows[0]['posterior']), rows[0]['memory']
  positions = [row['position'] for row in rows]
  panels = figure.subplots(len(cells), 1, sharex=True, squeeze=False)[:, 0]
  for index, (axes, cell) in enumerate(zip(panels, cells)):
    for value in rows[0]['posterior'][cell]:
      axes.plot(positions, [row['posterior'][cell][value] for row in rows], label=value)
    reads = [row['reads'][cell] for row in rows]
    axes.bar(positions, reads, width=0.86, color='0.85', zorder=0.5, label=f'P[J = {index + 1} | all words]')
    axes.set_ylim(-0.04, 1.04)
    axes.set_xlim(-0.5, len(rows) - 0.5)
    axes.set_yticks([0, 0.5, 1])
    axes.set_ylabel('probability')
    held = f', holds {memory[cell]!r}' if memory else ''
    axes.set_title(f'$M_{index + 1}$: {cell}{held}', loc='left')
    axes.legend(loc='center left', bbox_to_anchor=(1.0, 0.5))
  words = [row['word'] or '(prior)' for row in rows]
  panels[-1].set_xticks(positions, words, rotation=60, ha='right', va='center', rotation_mode='anchor')
  panels[-1].set_xlabel('words in order; each point is the posterior after its word')
  name = _SHOWN.get(rows[0]['document'], f'document {rows[0]["document"]}').replace('_', ' ')
  figure.suptitle(figures.caption(rows, f'{name}, exact posterior'))
  return figure
