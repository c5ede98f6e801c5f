"""Do a BERT's layers hold the belief P[H_i | X] where readers of tokens do not, and do its predictions use it?

A part is one pretraining. A reader, such as a layer or a control, is features [n, F] of texts by its name; each has a
record of what is measured of it.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
from jax import Array
from matplotlib.figure import Figure
import numpy as np
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.figures import lines
from experiments.analysis.statistics import interval, outcome, stratified
from experiments.analysis.tables import by_unit, geometric, means, select, Table, table, tested
from experiments.pipeline import checks, pretraining, trial
from experiments.runtime.progress import Reporter
from experiments.settings.grid import Point
from experiments.studies.settings import BeliefSettings
from experiments.studies.study import in_parts, Part, Row, Study
import hmm_jax as hj
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.distributions.processes import mess3
from hmm_jax.layers.probes import mean_kl
from hmm_jax.models.model import MaskedLM
from hmm_jax.tuning.token_readers import tokens_around

# |H| and |M| as in memory_vs_vanilla.
_MEMORY = Point(4, 5, 1)
# Tokens on each side of the [MASK] that window and table read.
_REACH = 8
# Of the texts of probes: training, validation, test.
_SPLITS = (0.8, 0.1, 0.1)
# A singular value of at most this share of the largest is rounding error.
_LEAST = 1e-6

# The measured fields of records by reader.
Measured = dict[str, Row]


class Texts(NamedTuple):
  """Texts with one [MASK], and what is known of it.

  Attributes:
    num_probed: the number of texts that probes read; the others are predicted, patched and drawn.
    inputs: [n, T]; [MASK] is V.
    positions: [n], of the [MASK].
    beliefs: [n, C], P[H_i | X_{-i}]; with a memory P[M | X_{-i}].
    token_probs: [n, V], the exact G there.
  """

  num_probed: int
  inputs: np.ndarray
  positions: np.ndarray
  beliefs: np.ndarray
  token_probs: np.ndarray

  def read(self, values: Any) -> np.ndarray:
    """The rows [n, ...] at the [MASK]s of values [n, T, ...]."""
    return values[np.arange(len(values)), self.positions]


def _parts(s: BeliefSettings) -> dict[str, Part]:
  """A part for each pretraining, the first of every process before the second of any."""
  processes: list[tuple[str, Point | None, dict[str, Any]]] = [
    (f'H{size}_T{temperature:g}', Point(size), dict(emission_temperature=temperature))
    for size, temperature in zip(s.num_states, s.temperatures)
  ]
  processes += [('mess3', None, dict(num_tokens=3)), ('memory', _MEMORY, {})]
  return {
    f'{name}_{number}': functools.partial(_part, name, number, point, fields)
    for number in range(s.num_trials)
    for name, point, fields in processes
  }


def _part(
  name: str, number: int, point: Point | None, fields: dict[str, Any], s: BeliefSettings, key: Array, reporter: Reporter
) -> list[Row]:
  """The records of one pretraining on texts of an HMM of a point, drawn with other fields of `hmm`, or of mess3."""
  key_hmm, key_pretraining, key_texts, key_probes = jax.random.split(key, 4)
  s = dataclasses.replace(s, hmm=dataclasses.replace(s.hmm, **fields))
  rows: list[Row] = []

  def add(found: Measured, design: str, step: int | None = None) -> None:
    same = {'process': name, 'hmm': number, 'design': design, 'step': step}
    rows.extend({**same, 'reader': reader, **fields} for reader, fields in found.items())

  with trial.precisely():
    hmm = trial.draw_distribution(s, point, key_hmm) if point else jax.tree.map(np.float32, mess3())
    fixed = draw(s, hmm, 0 if point else -1, jax.random.fold_in(key_texts, 0))
    designs = {'fixed': fixed, 'pooled': draw(s, hmm, None, jax.random.fold_in(key_texts, 1))}
    for design, texts in designs.items():
      add(exact(texts) | scores(controls(texts), texts, key_probes), design)
    model = pretraining.tuned_model(s.bert_module())
    planned = pretraining.planned(s, hmm, key_pretraining)
    for step, params in pretraining.params_along(planned, (0, *s.checkpoints), reporter):
      for design, texts in designs.items():
        read = layers(model, params, texts)
        add(prediction(texts, model, params) | scores(read, texts, key_probes), design, step)
    if point != _MEMORY:
      for layer, found in patches(fixed, model, params, hmm, key_probes).items():
        add(found, f'{layer} patched')
  return rows


def draw(s: BeliefSettings, hmm: Distribution, place: int | None, key: Array) -> Texts:
  """Texts with the [MASK] at a place, 0 or -1, or anywhere: those of probes, and a tenth as many others."""
  key_tokens, key_positions = jax.random.split(key)
  count = s.num_texts + s.num_texts // 10
  inputs = np.array(hj.sample_corpus(key_tokens, hmm, count, s.downstream.length), int)
  if place is None:
    positions = np.asarray(jax.random.uniform(key_positions, inputs.shape)).argmax(1)
  else:
    positions = np.full(count, place)
  rows = np.arange(count), positions
  inputs[rows] = hmm.num_tokens
  beliefs = hj.activations(hj.ExactModel(hmm.num_tokens), hmm, inputs)['beliefs'][rows].astype(float)
  token_probs = beliefs @ np.float64(hmm.joint_emission_matrix)
  if isinstance(hmm, hj.MemoryHMM):
    beliefs = beliefs.reshape(count, -1, hmm.num_states).sum(-1)
  return Texts(s.num_texts, inputs, positions, beliefs, token_probs)


def controls(texts: Texts) -> dict[str, np.ndarray]:
  """Readers without a network: the exact G, and the tokens near the [MASK], as one-hot rows and as they are."""
  V = texts.token_probs.shape[1]
  around = texts.read(tokens_around(texts.inputs, V, _REACH))
  return {'exact G': texts.token_probs, 'window': np.eye(V + 2)[around].reshape(len(around), -1), 'table': around}


def layers(model: MaskedLM, params: Any, texts: Texts) -> dict[str, np.ndarray]:
  """The layers of a model as readers."""
  return {name: texts.read(values) for name, values in hj.activations(model, params, texts.inputs).items()}


def scores(readers: dict[str, np.ndarray], texts: Texts, key: Array) -> Measured:
  """R^2 of an affine probe of each reader and KL of a softmax probe; a table has both itself."""
  n = texts.num_probed
  beliefs = texts.beliefs[:n]
  found: Measured = {}
  for reader, rows in readers.items():
    kinds = ('table', 'table') if reader == 'table' else ('affine', 'softmax')
    affine, law = (hj.probe(rows[:n], beliefs, key, kind=kind, splits=_SPLITS) for kind in kinds)
    kl = _against(law.kl, mean_kl(beliefs, beliefs.mean(0)))
    found[reader] = {'r_squared': affine.r_squared, **kl, **_points(law(rows[n:]), texts)}
  return found


def exact(texts: Texts) -> Measured:
  """The mean largest probability of beliefs."""
  n = texts.num_probed
  largest = float(texts.beliefs[:n].max(-1).mean())
  return {'exact': {'largest': largest, **_points(texts.beliefs[n:], texts)}}


def _points(beliefs: np.ndarray, texts: Texts) -> dict[str, Any]:
  """Beliefs of the other texts that a triangle shows: over three states, at a fixed place."""
  are_shown = beliefs.shape[1] == 3 and not np.ptp(texts.positions)
  return {'points': beliefs.round(3).tolist()} if are_shown else {}


def prediction(texts: Texts, model: MaskedLM, params: Any) -> Measured:
  """KL of predictions to the exact G, on the other texts."""
  n = texts.num_probed
  probs = texts.read(np.asarray(hj.token_probs(model, params, texts.inputs)))[n:]
  expected = texts.token_probs[n:]
  return {'prediction': _against(mean_kl(expected, probs), mean_kl(expected, expected.mean(0)))}


def _against(kl: float, reference: float) -> dict[str, float]:
  """A KL in nats, and as a share of another, such as that of the best constant; nothing if it is infinite."""
  return {'kl': kl, 'share': kl / reference} if np.isfinite(kl) else {}


def patches(texts: Texts, model: MaskedLM, params: Any, hmm: Distribution, key: Array) -> dict[str, Measured]:
  """KL to the exact prediction from another text's belief after each patch, in nats and as a share of no patch.

  Each of the other texts takes the belief of the one before it, at a fixed place. Readers are patches; by layer.
  """
  n, place = texts.num_probed, texts.positions[0]
  new = np.roll(texts.beliefs[n:], 1, 0)
  expected = new @ np.float64(hmm.joint_emission_matrix)
  found: dict[str, Measured] = {}
  for layer, values in hj.activations(model, params, texts.inputs).items():
    # A [MASK] has one embedding in all texts.
    if layer == 'embeddings':
      continue
    x = values[n:, place]
    swap = np.roll(x, 1, 0) - x
    encoding, _ = hj.probe(texts.beliefs[:n], values[:n, place], key).fitted
    # The belief moves activations within the span of these rows.
    moves = (texts.beliefs[:n] - texts.beliefs[:n].mean(0)) @ encoding
    changes = {
      'none': 0 * swap,
      'full': swap,
      'encoding': (new - texts.beliefs[n:]) @ encoding,
      'complement': swap - swap @ np.linalg.pinv(moves, rcond=_LEAST) @ moves,
    }
    kls: dict[str, float] = {}
    for name, change in changes.items():
      patched = values[n:].copy()
      patched[:, place] += change
      probs = hj.with_activations(model, params, texts.inputs[n:], {layer: patched})
      kls[name] = mean_kl(expected, np.asarray(probs)[:, place])
    found[layer] = {name: _against(kl, kls['none']) for name, kl in kls.items()}
  return found


def _ends(records: pd.DataFrame) -> pd.DataFrame:
  """The records of controls and of the untrained and the trained model, whose readers have different names."""
  last = records['step'].max()
  rows = records[~records['step'].between(1, last - 1)]
  reader = np.where(rows['step'] == 0, 'untrained ', '') + rows['reader']
  r_squared = rows['r_squared'].fillna(rows['largest'])
  # These controls are about the trained model.
  is_shown = ~reader.isin(['untrained embeddings', 'untrained shuffled'])
  return rows.assign(reader=reader, r_squared=r_squared)[is_shown]


def _means(title: str, rows: pd.DataFrame, field: str, place: str = 'design') -> Table:
  """Means over HMMs by reader, a row for each process and place."""
  cells = means(rows, ['process', place], field, ['hmm'], lambda values: f'{values.mean():.3g}', ['reader'])
  return table(title, cells, 2)


def _tests(ends: pd.DataFrame, s: BeliefSettings) -> Table:
  """The primary end points: geometric means over HMMs of ratios of KLs, tested against a bound."""
  last = f'layer_{s.bert.num_layers}'
  end_points = (
    ('weak', 'pooled', last, 'table', 1),
    ('weak', 'fixed', last, 'table', 1),
    ('weak', 'pooled', 'window', last, 1),
    ("the paper's", 'pooled', 'table', last, 1),
    ('all', 'pooled', last, f'untrained {last}', 1),
    ('all', f'{last} patched', 'encoding', 'none', 0.05),
    ('all', 'layer_1 patched', 'encoding', 'none', 0.5),
    ('all', f'{last} patched', 'none', 'complement', 1 / 0.9),
  )
  hmms = ends[ends['process'].str.startswith('H')]
  kl = by_unit(hmms, ['process', 'design', 'reader'], 'kl', ['hmm']).unstack(['design', 'reader'])
  is_paper = kl.index.get_level_values('process').str.endswith('_T0.01')
  kls = {'weak': kl[~is_paper], "the paper's": kl[is_paper], 'all': kl}
  found, rows = [], []
  for emissions, design, first, second, bound in end_points:
    of = kls[emissions][design]
    log = stratified(np.log(of[first] / of[second] / bound), ['process'])
    ratio, held = geometric(log, bound), outcome(log, -np.inf, 0)
    found.append(log)
    rows.append((emissions, design, first, second, f'{bound:.3g}', ratio, held))
  headings = ['emissions', 'design', 'KL of', 'over', 'expected below', 'ratio', 'outcome']
  frame = pd.DataFrame(rows, columns=headings)
  frame.insert(6, 'p, Holm', tested(pd.Series(found))['p, Holm'])
  return table('Primary end points: ratios of KL, geometric means [95% intervals over HMMs]', frame, 4)


def tables(records: pd.DataFrame, s: BeliefSettings) -> dict[str, Table]:
  """All tables, only from records."""
  ends = _ends(records)
  probed, patched = ends.dropna(subset='r_squared'), ends[ends['design'].str.endswith('patched')]
  made = {
    'tests': _tests(ends, s),
    'kl': _means('KL of a softmax probe, or of a table, in nats', probed, 'kl'),
    'r_squared': _means('R^2 of an affine probe, or of a table; exact: mean largest probability', probed, 'r_squared'),
    'patches': _means(
      "KL to the exact prediction from another text's belief, as a share of no patch", patched, 'share'
    ),
  }
  # Earlier runs tuned prompts; those of grids are measured by `pipeline.prompt_effects`.
  if 'shift' in records:
    moved = records.melt(['process', 'hmm', 'reader'], ['distance', 'distance_prompted', 'shift'], 'measure')
    made['prompts'] = _means('Under a tuned prompt', moved, 'value', 'measure')
  return made


def figures(records: pd.DataFrame, s: BeliefSettings) -> dict[str, Any]:
  """All figures, only from records."""
  ends = _ends(records)
  same: dict[str, Any] = dict(field='share', unit=['hmm'], over='HMMs', cell=interval)
  # An untrained network predicts worse than a constant.
  same['then'] = lambda axes: axes.set_ylim(0, 1.5)
  made = {
    'layers': lines(
      ends.dropna(subset='r_squared'),
      s.figure,
      'Readers of belief states',
      x='reader',
      by='design',
      panel='process',
      ylabel="KL, as a share of a constant's",
      columns=3,
      **same,
    ),
    'patches': lines(
      ends[ends['design'].str.endswith('patched')],
      s.figure,
      'Predictions after patches of the belief state',
      x='reader',
      by='process',
      panel='design',
      ylabel='KL, as a share of no patch',
      **same,
    ),
    'simplex': _simplex(ends, s),
  }
  return {name: figure for name, figure in made.items() if figure}


@figures_lib.styled
def _simplex(ends: pd.DataFrame, s: BeliefSettings) -> Figure | None:
  """The beliefs over the states of mess3 that readers return in a triangle each, in the colours of the exact ones."""
  drawn = select(ends, process='mess3', hmm=0)
  if drawn.empty:
    return None
  drawn = drawn.dropna(subset='points')
  colours = np.array(drawn['points'].iloc[0])
  figure, grid = figures_lib.panels(s.figure, len(drawn), columns=5)
  for axes, reader, points in zip(grid, drawn['reader'], drawn['points']):
    hj.plots.simplex(np.array(points), colours, axes)
    axes.set_title(reader)
  figures_lib.finish(figure, ends, 'Belief states that readers return')
  return figure


STUDY = Study(in_parts(_parts), tables, figures, checks.check_grid)
