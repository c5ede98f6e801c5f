"""A user's own HMM and task: which assumptions hold, and what the constructions that apply give.

`hmm_file` is an .npz of arrays or a .json of nested lists with these keys, shapes as in `HMM` and `MemoryHMM`:

  initial_probs, transition_matrix, emission_matrix
  task_weights    mu [C, S], or [S] for the paper's label 1(mu^T P >= 0), class 0 where it is 1
  silent_probs    P[H_0] [H], optional: the label speaks of H_0; without it, of the masked first state. With a memory
                  the label speaks of a cell, and P[H_0] may depend on the memory; without it, it is P[H_1]
  memory_probs, cell_index, cell    of a memory-augmented HMM; the label speaks of cell j*, S = M values
"""

import functools
import math
import pathlib
import reprlib
import textwrap
from typing import Any

import jax
from jax import Array
import numpy as np

from experiments.records import environment, loading, results
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies.theory import report
from experiments.studies.theory.settings import ExamineSettings
from hmm_jax.blocks import even_size, in_blocks
from hmm_jax.hmm import check_probs, HMM
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.sharding import exact_device
from hmm_jax.theory.exact.problem import MemoryProblem, Problem, StateProblem
from hmm_jax.theory.limits import certificates, separability
from hmm_jax.theory.problems import texts
from hmm_jax.theory.theorems import assumptions, scoring, theorems
from hmm_jax.theory.theorems.assumptions import AssumptionError

Record = dict[str, Any]
_STATE_KEYS = (*HMM._fields, 'task_weights')
_MEMORY_KEYS = (*_STATE_KEYS, 'memory_probs', 'cell_index', 'cell')
_LARGEST_WEIGHT = 1e100
_LONGEST_REASON = 160
_OF_REGION = ('disagreements', 'outside_margin', 'ties', 'smallest_gap')
# Entries of the likelihood rows that are evaluated at a time; XLA folds constants of the size of a batch.
_BLOCK_ENTRIES = 2**17


def check(settings: ExamineSettings) -> None:
  """Raises SettingsError where the user's file is not what it should be."""
  load(settings.hmm_file)


def run(settings: ExamineSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Examines the file, anew on every call."""
  reporter.say(f'examining {settings.hmm_file}')
  with jax.default_device(exact_device()):
    records = examined(load(settings.hmm_file), settings)
  made = {'environment': environment.keep(workdir, environment.environment([exact_device()]))}
  results.write(workdir, settings, [record | made for record in records])


def show(settings: ExamineSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables of the records."""
  del settings
  report.show(report.examination_tables(results.load(workdir)), workdir, reporter)


def load(path: str | pathlib.Path) -> Problem:
  """The HMM and the task of a file, float64, rows divided by their sums.

  Raises:
    SettingsError: one sentence that names the key, its value and what would be valid.
  """
  if not str(path):
    raise SettingsError('hmm_file is missing; valid is --config.hmm_file=PATH, an .npz or a .json file')
  path = pathlib.Path(path)
  name, suffix = f'hmm_file is {str(path)!r}', path.suffix.lower()
  readers = {'.npz': loading.arrays, '.json': _read_json}
  if suffix not in readers or not path.is_file():
    missing = ', which is no file' if suffix in readers else ''
    raise SettingsError(f'{name}{missing}; valid is the path of an .npz or a .json file')
  try:
    entries = readers[suffix](path)
  except Exception as error:
    # What is damaged, truncated or not what its name says may fail in any way, and numpy may quote all of it.
    reason = textwrap.shorten(repr(str(error) or type(error).__name__)[1:-1], _LONGEST_REASON)
    raise SettingsError(f'{name}, which cannot be read as {suffix} ({reason}); valid is a whole file')
  try:
    return _problem(entries)
  except ValueError as error:
    raise SettingsError(f'{path}: {error}')


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  content = loading.json_value(path, 'utf-8-sig', object_pairs_hook=_once_each)
  if not isinstance(content, dict):
    raise ValueError(f'it holds {reprlib.repr(content)}; valid is an object, nested lists of numbers by key')
  return content


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  keys = [key for key, _ in pairs]
  for key in keys:
    if keys.count(key) > 1:
      raise ValueError(f'{key!r} is given {keys.count(key)} times; valid is once')
  return dict(pairs)


def _problem(entries: dict[str, Any]) -> Problem:
  """Raises ValueError, one sentence, at the first key that is wrong."""
  has_memory = 'memory_probs' in entries
  required, optional = _MEMORY_KEYS if has_memory else _STATE_KEYS, ('silent_probs',)
  kind = 'an HMM with a memory' if has_memory else 'an HMM without memory_probs'
  for key in entries:
    if key not in required + optional:
      raise ValueError(f'{key!r} is no key of {kind}; valid are {", ".join(required + optional)}')
  for key in required:
    if key not in entries:
      raise ValueError(f'{key} is missing; {kind} has {", ".join(required)}')
  arrays = {key: _numbers(key, value) for key, value in entries.items()}
  chain = MemoryHMM if has_memory else HMM
  hmm = chain(**{key: arrays[key] for key in chain._fields}).validate()
  normalised = hmm._replace(**{key: _normalised(getattr(hmm, key)) for key in HMM._fields})
  silent_probs = arrays.get('silent_probs', hmm.initial_probs)
  by_memory = np.shape(hmm.memory_probs) if isinstance(hmm, MemoryHMM) and silent_probs.ndim > 1 else ()
  check_probs('silent_probs', silent_probs, by_memory + (hmm.num_states,))
  if not isinstance(normalised, MemoryHMM):
    task_weights = _task_weights(arrays['task_weights'], hmm.num_states, 'hidden state')
    return StateProblem(normalised, _normalised(silent_probs), task_weights, drawn=0)
  cell, memory_probs = arrays['cell'], arrays['memory_probs']
  if cell.shape or cell.dtype.kind not in 'iu' or not 0 <= cell < normalised.num_cells:
    raise ValueError(f'cell is {cell.tolist()}; valid is an integer from 0 to {normalised.num_cells - 1}')
  memory_probs = _normalised(memory_probs.reshape(-1)).reshape(memory_probs.shape)
  normalised = normalised._replace(memory_probs=memory_probs, cell_index=arrays['cell_index'].astype(np.int32))
  task_weights = _task_weights(arrays['task_weights'], normalised.memory_size, 'value of the memory')
  return MemoryProblem(normalised, _normalised(silent_probs), task_weights, int(cell), drawn=0)


def _numbers(key: str, value: Any) -> np.ndarray:
  """An array of integers or of float64."""
  try:
    array = np.asarray(value)
  except ValueError:
    array = np.empty((), object)
  if array.dtype.kind not in 'iuf':
    raise ValueError(f'{key} is {reprlib.repr(value)}; valid is an array of numbers')
  return array if array.dtype.kind in 'iu' else array.astype(np.float64)


def _normalised(rows: Any) -> np.ndarray:
  rows = np.asarray(rows, np.float64)
  return rows / rows.sum(-1, keepdims=True)


def _task_weights(weights: np.ndarray, size: int, what: str) -> np.ndarray:
  """mu [C, S] float64; a mu [S] is that of class 0 beside a class of zeros."""
  if weights.ndim not in (1, 2) or weights.shape[-1] != size:
    valid = f'[{size}] or [classes, {size}], a weight for each {what}'
    raise ValueError(f'task_weights has shape {weights.shape}; valid is {valid}')
  weights = np.asarray(weights, np.float64)
  wrong = weights[~(np.abs(weights) <= _LARGEST_WEIGHT)]
  if wrong.size:
    valid = f'numbers from {-_LARGEST_WEIGHT:g} to {_LARGEST_WEIGHT:g}'
    raise ValueError(f'task_weights has the entry {wrong[0]:g}; valid are {valid}')
  weights = np.stack([weights, np.zeros(size)]) if weights.ndim == 1 else weights
  assumptions.contrasts(weights)  # Raises where its rows do not differ.
  return weights


def examined(problem: Problem, settings: ExamineSettings) -> list[Record]:
  """A record for each assumption and each construction that applies, and for the linear program where 3.1 fails.

  Every sequence up to the largest length T with V^T of at most `max_sequences` is checked, and sampled long ones.
  """
  problem = problem._replace(task_weights=_scaled(problem.task_weights))
  key, num_tokens, longest = jax.random.key(settings.seed), problem.hmm.num_tokens, 0
  # One token has as many sequences as two.
  while max(num_tokens, 2) ** (longest + 1) <= settings.max_sequences:
    longest += 1
  found = {'enumerated': texts.all_sequences(num_tokens, longest)} if longest else {}
  found['sampled'] = _sampled(problem, key, settings.num_sampled, settings.sampled_length)
  numbers, names = ['3.1', '3.2', '3.5'], ['3.3', '3.6']
  if isinstance(problem, MemoryProblem):
    numbers, names = ['3.2', '4.2', '4.4', 'start', '4.5'], ['4.3', '4.6' if problem.hmm.num_cells == 1 else 'C.6']
  findings = {number: theorems.finding(number, problem, settings.limits) for number in numbers}
  records = [{'record': 'assumption', **_plain(finding._asdict())} for finding in findings.values()]
  records += [_construction(problem, theorem, found, settings) for theorem in names]
  if isinstance(problem, StateProblem) and not findings['3.1'].holds and longest:
    records.append(_linear_program(problem, found['enumerated'], settings.margin))
  return records


def _scaled(task_weights: np.ndarray) -> np.ndarray:
  """mu over the power of two, which rounds nothing, that brings its largest contrast into [1, 2)."""
  _, exponent = np.frexp(np.abs(assumptions.contrasts(task_weights)).max())
  return np.ldexp(task_weights, 1 - exponent)


def _sampled(problem: Problem, key: Array, count: int, length: int) -> np.ndarray:
  """Texts [n, T]; where the label speaks of a silent state, what follows it."""
  if isinstance(problem, MemoryProblem):
    return texts.sampled(problem.hmm, key, count, length)
  return texts.sampled(problem.hmm.starting_from(problem.silent_probs), key, count, length + 1)[:, 1:]


def _plain(value: Any) -> Any:
  """As JSON has it: arrays as lists, fields and keys by their texts, null for what is not finite."""
  if hasattr(value, '_asdict'):
    value = value._asdict()
  if isinstance(value, dict):
    return {str(key): _plain(entry) for key, entry in value.items()}
  if isinstance(value, (list, tuple, np.ndarray)):
    return [_plain(entry) for entry in value]
  if isinstance(value, np.generic):
    value = value.item()
  return None if isinstance(value, float) and not math.isfinite(value) else value


def _construction(problem: Problem, theorem: str, texts: dict[str, np.ndarray], settings: ExamineSettings) -> Record:
  record, checked = {'record': 'construction', 'statement': f'Theorem {theorem}'}, {}
  for kind, tokens in texts.items():
    try:
      evaluate = theorems.evaluator(theorem, problem, tokens.shape[1], settings.limits)
    except AssumptionError as error:
      return {**record, 'built': False, 'reason': str(error)}
    found = _in_blocks(evaluate, problem, tokens)
    checked[kind] = {'longest': tokens.shape[1], **_agreement(found, settings.margin)}
  return {**record, 'built': True, 'reason': 'its assumptions hold', **checked}


def _in_blocks(evaluate: Any, problem: Problem, tokens: np.ndarray) -> Any:
  """`evaluate(tokens)`, as many sequences at a time as bounds the memory of their messages."""
  size = even_size(len(tokens), tokens.shape[1] * problem.hmm.joint_initial_probs.size, _BLOCK_ENTRIES)
  return in_blocks(evaluate, tokens, size)


def _agreement(found: scoring.Evaluation, margin: float) -> Record:
  """How the construction did on all sequences, and on those that its theorem speaks of."""
  overall = scoring.count(found._replace(in_region=found.possible), margin)
  inside = scoring.count(found, margin)
  share = lambda count: 1 - count.disagreements / count.in_region if count.in_region else None
  labels = np.bincount(found.exact[found.possible].argmax(-1), minlength=1)
  fields = {
    'sequences': overall.sequences,
    'majority': labels.max() / overall.sequences if overall.sequences else None,
    'agreement': share(overall),
    'in_region': inside.in_region,
    'agreement_in_region': share(inside),
    **{f'{name}_in_region': getattr(inside, name) for name in _OF_REGION},
  }
  return _plain(fields)


def _linear_program(problem: StateProblem, tokens: np.ndarray, margin: float) -> Record:
  """Whether any linear head on G_1 has the labels that no near tie decides, of all sequences at once."""
  predict = functools.partial(scoring.first_predictions, problem)
  features, scores, possible = _in_blocks(predict, problem, tokens)
  chosen = possible & (scoring.score_gaps(scores) > margin)
  tokens, features, labels = tokens[chosen], features[chosen], scores[chosen].argmax(-1)
  record = {'record': 'linear program', 'statement': 'Linear head', 'longest': tokens.shape[1]}
  record |= {'sequences': len(tokens), 'near_ties': int(possible.sum()) - len(tokens)}
  if len(np.unique(labels)) < 2:
    return {**record, 'exists': True, 'reason': 'all labels that no near tie decides are equal'}
  try:
    found = separability.linear_separation(features, labels, scores.shape[1], margin)
  except RuntimeError as error:
    return {**record, 'exists': None, 'reason': f'the linear program was given up ({error})'}
  if found.separable:
    by_head = features @ found.head
    margin = float(scoring.score_gaps(by_head).min())
    is_right = margin > 0 and bool((by_head.argmax(-1) == labels).all())
    reason = f'the head found is {"right" if is_right else "not right"} on all, with margin {margin:.2g}'
    return {**record, 'exists': is_right or None, 'reason': reason, 'margin': margin}
  inputs = np.unique(found.pairs[:, 0])
  confirmed = certificates.is_exact(problem, tokens, labels, found)
  proof = {True: 'confirmed', False: 'not confirmed', None: 'too large to be confirmed'}[confirmed]
  return {
    **record,
    'exists': False,
    'reason': f'a certificate of {len(inputs)} sequences, residual {found.residual:.1e}, {proof} in exact arithmetic',
    'certificate_sequences': len(inputs),
    'residual': found.residual,
    'confirmed': confirmed,
    'certificate': [
      {
        'tokens': [token for token in tokens[index].tolist() if token < problem.hmm.num_tokens],
        'label': int(labels[index]),
        'other': int(other),
        'weight': float(weight),
      }
      for (index, other), weight in zip(found.pairs.tolist(), found.weights)
    ],
  }
