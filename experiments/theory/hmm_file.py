"""A user's own HMM and task: read from a file, held against every assumption, and each construction tried on it.

A file is an .npz of arrays or a .json of nested lists with these keys, shapes as in `HMM` and `MemoryHMM`:

  initial_probs, transition_matrix, emission_matrix
  task_weights    mu [C, S], or [S] for the paper's label 1(mu^T P >= 0), class 0 where it is 1
  silent_probs    P[H_0] [H], optional: the label speaks of H_0; without it, of the masked first state
  memory_probs, cell_index, cell    of a memory-augmented HMM; the label speaks of cell j*, S = M values
"""

from collections.abc import Callable
import json
import math
import pathlib
import reprlib
from typing import Any
import zipfile
import zlib

import jax
import numpy as np
import rich.box
import rich.table

from experiments.settings import SettingsError
from experiments.theory import evaluation
from hmm_jax.hmm import check_probs
from hmm_jax.hmm import HMM
from hmm_jax.hmm import sample_corpus
from hmm_jax.memory_hmm import MemoryHMM
from hmm_jax.theory import assumptions
from hmm_jax.theory import rationals
from hmm_jax.theory import recovery
from hmm_jax.theory import separability
from hmm_jax.theory.assumptions import AssumptionError
from hmm_jax.theory.assumptions import Finding
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.structured import MemoryProblem
from hmm_jax.theory.structured import StateProblem

Array = jax.Array
Problem = StateProblem | MemoryProblem
Record = dict[str, Any]
# tokens [n, T] -> arrays with leading axis n, such as an `Evaluation`.
Evaluate = Callable[[np.ndarray], tuple[np.ndarray, ...]]

_STATE_KEYS = ('initial_probs', 'transition_matrix', 'emission_matrix', 'task_weights')
_MEMORY_KEYS = (*_STATE_KEYS, 'memory_probs', 'cell_index', 'cell')
_LARGEST_WEIGHT = 1e100
# What reading a file that is damaged, truncated or not what its name says can raise.
_UNREADABLE = (
  OSError,
  ValueError,
  EOFError,
  RuntimeError,
  MemoryError,
  OverflowError,
  zipfile.BadZipFile,
  zlib.error,
)
# Entries of the likelihood rows that are evaluated at a time.
_BLOCK_ENTRIES = 2**20
# Inputs of a certificate up to which it is confirmed in exact arithmetic, whose numbers grow with them.
_LARGEST_PROOF = 64
# Entries of a witness that are printed.
_SHOWN = 8


def load(path: str | pathlib.Path) -> Problem:
  """The HMM and the task of a file, float64, rows divided by their sums.

  Raises:
    SettingsError: one sentence that names the key, its value and what would be valid.
  """
  path = pathlib.Path(path)
  arrays = _read(path)
  try:
    return _problem(arrays)
  except ValueError as error:
    raise SettingsError(f'{path}: {error}')


def _read(path: pathlib.Path) -> dict[str, Any]:
  """The entries of the file by key, as they are."""
  readers = {'.npz': _read_npz, '.json': _read_json}
  if path.suffix.lower() not in readers:
    raise SettingsError(f'hmm_file is {str(path)!r}; valid is the path of an .npz or a .json file')
  if not path.is_file():
    raise SettingsError(f'hmm_file is {str(path)!r}, which is no file; valid is the path of an .npz or a .json file')
  try:
    return readers[path.suffix.lower()](path)
  except _UNREADABLE as error:
    reason = ' '.join(str(error).split()) or type(error).__name__
    raise SettingsError(f'hmm_file is {str(path)!r}, which cannot be read as {path.suffix.lower()} ({reason})')


def _read_npz(path: pathlib.Path) -> dict[str, Any]:
  content = np.load(path, allow_pickle=False)
  if not isinstance(content, np.lib.npyio.NpzFile):
    raise ValueError('it holds one array; valid are arrays by name, as np.savez writes them')
  with content:
    return {key: content[key] for key in content.files}


def _read_json(path: pathlib.Path) -> dict[str, Any]:
  content = json.loads(path.read_text('utf-8-sig'), object_pairs_hook=_once_each)
  if not isinstance(content, dict):
    raise ValueError(f'it holds {reprlib.repr(content)}; valid is an object, nested lists of numbers by key')
  return content


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  keys = [key for key, _ in pairs]
  twice = [key for key in keys if keys.count(key) > 1]
  if twice:
    raise ValueError(f'{twice[0]!r} is given {keys.count(twice[0])} times; valid is once')
  return dict(pairs)


def _problem(entries: dict[str, Any]) -> Problem:
  """Raises ValueError, one sentence, at the first key that is wrong."""
  has_memory = 'memory_probs' in entries
  required, optional = (_MEMORY_KEYS, ()) if has_memory else (_STATE_KEYS, ('silent_probs',))
  kind = 'an HMM with a memory' if has_memory else 'an HMM without memory_probs'
  for key in entries:
    if key not in required + optional:
      raise ValueError(f'{key!r} is no key of {kind}; valid are {", ".join(required + optional)}')
  for key in required:
    if key not in entries:
      raise ValueError(f'{key} is missing; {kind} has {", ".join(required)}')
  arrays = {key: _numbers(key, value) for key, value in entries.items()}
  return _memory_problem(arrays) if has_memory else _state_problem(arrays)


def _numbers(key: str, value: Any) -> np.ndarray:
  """An array of integers or of float64."""
  try:
    array = np.asarray(value)
  except ValueError:
    array = np.empty((), object)
  if array.dtype.kind not in 'iuf':
    raise ValueError(f'{key} is {reprlib.repr(value)}; valid is an array of numbers')
  return array if array.dtype.kind in 'iu' else array.astype(np.float64)


def _state_problem(arrays: dict[str, np.ndarray]) -> StateProblem:
  hmm = HMM(*(arrays[key] for key in HMM._fields)).validate()
  silent_probs = arrays.get('silent_probs', hmm.initial_probs)
  check_probs('silent_probs', silent_probs, (hmm.num_states,))
  task_weights = _task_weights(arrays['task_weights'], hmm.num_states, 'hidden state')
  return StateProblem(HMM(*map(_normalised, hmm)), _normalised(silent_probs), task_weights, drawn=0)


def _memory_problem(arrays: dict[str, np.ndarray]) -> MemoryProblem:
  hmm = MemoryHMM(*(arrays[key] for key in MemoryHMM._fields)).validate()
  cell = arrays['cell']
  if cell.shape or cell.dtype.kind not in 'iu' or not 0 <= cell < hmm.num_cells:
    raise ValueError(f'cell is {cell.tolist()}; valid is an integer from 0 to {hmm.num_cells - 1}')
  task_weights = _task_weights(arrays['task_weights'], hmm.memory_size, 'value of the memory')
  exact = MemoryHMM(
    memory_probs=_normalised(hmm.memory_probs.reshape(-1)).reshape(hmm.memory_probs.shape),
    initial_probs=_normalised(hmm.initial_probs),
    transition_matrix=_normalised(hmm.transition_matrix),
    cell_index=hmm.cell_index.astype(np.int32),
    emission_matrix=_normalised(hmm.emission_matrix),
  )
  return MemoryProblem(exact, task_weights, int(cell), drawn=0)


def _normalised(rows: np.ndarray) -> np.ndarray:
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
  assumptions.contrasts(weights)
  return weights


def report(
  problem: Problem,
  thresholds: Thresholds,
  *,
  max_nodes: int,
  tolerance: float,
  margin: float,
  max_sequences: int,
  num_sampled: int,
  sampled_length: int,
  key: Array,
) -> list[Record]:
  """A record each of the assumptions and the constructions that apply, and of the linear program where 3.1 fails.

  Args:
    problem: from `load`.
    thresholds: what counts as zero.
    max_nodes: of the search for H* in Assumption 3.5.
    tolerance: of Assumption 4.4, absolute.
    margin: labels whose two best scores differ by no more are near ties; mu is scaled first (`_scaled`).
    max_sequences: every sequence is checked up to the largest length T with V^T of at most this.
    num_sampled: how many long sequences are drawn.
    sampled_length: their length.
    key: a PRNG key of the draw.
  """
  problem = problem._replace(task_weights=_scaled(problem.task_weights))
  longest = _longest(problem.hmm.num_tokens, max_sequences)
  texts = {'sampled': _sampled(problem, key, num_sampled, sampled_length)}
  if longest:
    texts = {'enumerated': evaluation.all_sequences(problem.hmm.num_tokens, longest), **texts}
  examine = _examine_states if isinstance(problem, StateProblem) else _examine_memory
  findings, constructions = examine(problem, thresholds, max_nodes, tolerance)
  records = [_assumption(finding) for finding in findings]
  records += [_construction(problem, name, make, texts, margin) for name, make in constructions.items()]
  degenerate = any(finding.statement == 'Assumption 3.1' and not finding.holds for finding in findings)
  if degenerate and longest:
    records.append(_linear_program(problem, texts['enumerated'], margin))
  return records


def _scaled(task_weights: np.ndarray) -> np.ndarray:
  """mu over the power of two, which rounds nothing, that brings its largest contrast into [1, 2)."""
  _, exponent = np.frexp(np.abs(assumptions.contrasts(task_weights)).max())
  return np.ldexp(task_weights, 1 - exponent)


def _longest(num_tokens: int, max_sequences: int) -> int:
  """The largest T with V^T of at most `max_sequences`; that of two tokens where there is one."""
  length = 0
  while max(num_tokens, 2) ** (length + 1) <= max_sequences:
    length += 1
  return length


def _sampled(problem: Problem, key: Array, count: int, length: int) -> np.ndarray:
  """Texts [n, T]; where the label speaks of a silent state, what follows it."""
  as_float32 = lambda hmm: jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, hmm)
  if isinstance(problem, MemoryProblem):
    return np.asarray(sample_corpus(key, as_float32(problem.hmm), count, length), np.int32)
  from_silent = as_float32(problem.hmm.starting_from(problem.silent_probs))
  return np.asarray(sample_corpus(key, from_silent, count, length + 1), np.int32)[:, 1:]


# What makes a construction for texts of length T, and evaluates it on them; raises AssumptionError.
_Make = Callable[[int], Evaluate]


def _examine_states(
  problem: StateProblem, thresholds: Thresholds, max_nodes: int, tolerance: float
) -> tuple[list[Finding], dict[str, _Make]]:
  del tolerance
  hmm, silent_probs, mu, _ = problem
  both_laws = hmm._replace(initial_probs=np.stack([hmm.initial_probs, silent_probs]))
  findings = [
    assumptions.non_degeneracy(hmm, thresholds),
    assumptions.regularity(both_laws, thresholds),
    assumptions.relaxed_non_degeneracy(hmm, mu, thresholds, max_nodes),
  ]

  def evaluated(build):
    def make(length):
      del length
      built = build()
      return lambda tokens: evaluation.evaluate_states(hmm, silent_probs, mu, built, tokens)

    return make

  return findings, {
    'Theorem 3.3': evaluated(lambda: recovery.theorem_3_3(hmm, mu, silent_probs, thresholds)),
    'Theorem 3.6': evaluated(lambda: recovery.theorem_3_6(hmm, mu, silent_probs, thresholds, max_nodes)),
  }


def _examine_memory(
  problem: MemoryProblem, thresholds: Thresholds, max_nodes: int, tolerance: float
) -> tuple[list[Finding], dict[str, _Make]]:
  del max_nodes
  hmm, mu, cell, _ = problem
  whole = assumptions.recoverable_hidden_states(hmm, cell, thresholds)
  relaxed = assumptions.relaxed_recoverable_hidden_states(hmm, cell, mu, thresholds)
  findings = [
    assumptions.regularity(hmm, thresholds),
    whole,
    assumptions.stationarity(hmm, thresholds, tolerance),
    relaxed,
  ]

  def evaluated(build, finding):
    def make(length):
      built = build(length)
      return lambda tokens: evaluation.evaluate_memory(hmm, cell, mu, built, finding, tokens)

    return make

  return findings, {
    'Theorem 4.3': evaluated(lambda length: recovery.theorem_4_3(hmm, mu, cell, length, thresholds), whole),
    'Theorem 4.6' if hmm.num_cells == 1 else 'Theorem C.6': evaluated(
      lambda length: recovery.theorem_4_6(hmm, mu, cell, length, thresholds, tolerance), relaxed
    ),
  }


def _assumption(finding: Finding) -> Record:
  fields = {**finding._asdict(), 'holds': bool(finding.holds), 'thresholds': finding.thresholds._asdict()}
  return {'record': 'assumption', **_plain(fields)}


def _plain(value: Any) -> Any:
  """As JSON has it: arrays as lists, keys as texts, null for what is not finite."""
  if isinstance(value, dict):
    return {str(key): _plain(entry) for key, entry in value.items()}
  if isinstance(value, (list, tuple, np.ndarray)):
    return [_plain(entry) for entry in value]
  if isinstance(value, np.generic):
    value = value.item()
  return None if isinstance(value, float) and not math.isfinite(value) else value


def _construction(problem: Problem, name: str, make: _Make, texts: dict[str, np.ndarray], margin: float) -> Record:
  record = {'record': 'construction', 'statement': name}
  checked = {}
  for kind, tokens in texts.items():
    try:
      evaluate = make(tokens.shape[1])
    except AssumptionError as error:
      return {**record, 'built': False, 'reason': str(error)}
    found = evaluation.Evaluation(*_in_blocks(evaluate, tokens, problem.hmm.joint_initial_probs.size))
    checked[kind] = {'longest': tokens.shape[1], **_agreement(found, margin)}
  return {**record, 'built': True, 'reason': 'its assumptions hold', **checked}


def _agreement(found: evaluation.Evaluation, margin: float) -> Record:
  """How the construction did on all sequences, and on those that its theorem speaks of."""
  overall = evaluation.count(found._replace(in_region=found.possible), margin)
  inside = evaluation.count(found, margin)
  share = lambda count: 1 - count.disagreements / count.in_region if count.in_region else None
  labels = np.bincount(found.exact[found.possible].argmax(-1), minlength=1)
  fields = {
    'sequences': overall.sequences,
    'majority': labels.max() / overall.sequences if overall.sequences else None,
    'agreement': share(overall),
    'in_region': inside.in_region,
    'agreement_in_region': share(inside),
    'disagreements_in_region': inside.disagreements,
    'outside_margin_in_region': inside.outside_margin,
    'ties_in_region': inside.ties,
    'smallest_gap_in_region': inside.smallest_gap,
  }
  return _plain(fields)


def _in_blocks(evaluate: Evaluate, tokens: np.ndarray, num_states: int) -> tuple[np.ndarray, ...]:
  """`evaluate(tokens)`, as many sequences at a time as bounds the memory of their messages."""
  most = max(_BLOCK_ENTRIES // (tokens.shape[1] * num_states), 1)
  num_blocks = -(-len(tokens) // most)
  size = -(-len(tokens) // num_blocks)
  # The last block is filled up with sequences already seen, so that all compile once.
  blocks = np.resize(tokens, (num_blocks, size, tokens.shape[1]))
  return tuple(np.concatenate(parts)[: len(tokens)] for parts in zip(*map(evaluate, blocks)))


def _linear_program(problem: StateProblem, tokens: np.ndarray, margin: float) -> Record:
  """Whether any linear head on G_1 has the labels that no near tie decides, of all sequences at once."""
  hmm, silent_probs, mu, _ = problem
  labelled = hmm.starting_from(silent_probs)
  features, *_ = _in_blocks(lambda block: evaluation.first_predictions(hmm, mu, block), tokens, hmm.num_states)
  _, scores, possible = _in_blocks(
    lambda block: evaluation.first_predictions(labelled, mu, block), tokens, hmm.num_states
  )
  best = np.sort(scores, axis=-1)
  chosen = possible & (best[:, -1] - best[:, -2] > margin)
  tokens, features, labels = tokens[chosen], features[chosen], scores[chosen].argmax(-1)
  record = {'record': 'linear program', 'statement': 'Linear head', 'longest': tokens.shape[1]}
  record |= {'sequences': len(tokens), 'near_ties': int(possible.sum()) - len(tokens)}
  if len(np.unique(labels)) < 2:
    return {**record, 'exists': True, 'reason': 'all labels that no near tie decides are equal'}
  try:
    found = separability.linear_separation(features, labels, len(mu), margin)
  except RuntimeError as error:
    return {**record, 'exists': None, 'reason': f'the linear program was given up ({error})'}
  if found.separable:
    least = _least_gap(features @ found.head, labels)
    reason = f'the head found is {"right" if least > 0 else "not right"} on all, with margin {least:.2g}'
    return {**record, 'exists': True if least > 0 else None, 'reason': reason, 'margin': least}
  inputs = np.unique(found.pairs[:, 0])
  confirmed = _is_exact(problem, tokens[inputs], labels[inputs], np.searchsorted(inputs, found.pairs[:, 0]), found)
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
        'tokens': [token for token in tokens[index].tolist() if token < hmm.num_tokens],
        'label': int(labels[index]),
        'other': int(other),
        'weight': float(weight),
      }
      for (index, other), weight in zip(found.pairs.tolist(), found.weights)
    ],
  }


def _least_gap(scores: np.ndarray, labels: np.ndarray) -> float:
  """By how much the score of the label is above all others, at the least."""
  is_label = np.eye(scores.shape[1], dtype=bool)[labels]
  return float((scores[is_label] - np.where(is_label, -np.inf, scores).max(-1)).min())


def _is_exact(
  problem: StateProblem, tokens: np.ndarray, labels: np.ndarray, places: np.ndarray, found: separability.Separation
) -> bool | None:
  """Whether labels and certificate hold for the floats of the HMM, without any rounding; None where it is too large."""
  if len(found.pairs) > _LARGEST_PROOF:
    return None
  hmm, mu = rationals.exact_hmm(problem.hmm), rationals.exact(problem.task_weights)
  silent_probs = rationals.exact(problem.silent_probs)
  labelled = hmm.starting_from(silent_probs / silent_probs.sum())
  features = []
  for sequence, label in zip(tokens.tolist(), labels):
    rows = rationals.likelihood_rows(hmm, [hmm.num_tokens, *sequence])
    scores = mu @ rationals.state_probs(labelled, rows, 0, leave_out=True)
    if any(score >= scores[label] for other, score in enumerate(scores) if other != label):
      return False
    features.append(rationals.token_probs(hmm, rows, 0))
  pairs = list(zip(places.tolist(), found.pairs[:, 1].tolist()))
  return separability.exact_certificate(features, labels, pairs, len(mu)) is not None


def tables(records: list[Record]) -> list[rich.table.Table]:
  """Assumptions, and constructions with the linear program, each 120 columns wide at most."""
  return [
    _assumption_table([record for record in records if record['record'] == 'assumption']),
    _construction_table([record for record in records if record['record'] != 'assumption']),
  ]


def _assumption_table(records: list[Record]) -> rich.table.Table:
  table = rich.table.Table(
    title='Assumptions of the paper, and how close each is to the other answer', box=rich.box.SIMPLE
  )
  for title, width in (('assumption', 10), ('holds', 5), ('why', 32), ('witness', 30), ('closeness', 28)):
    table.add_column(title, max_width=width, overflow='fold')
  for record in records:
    table.add_row(
      record['statement'].removeprefix('Assumption '),
      'yes' if record['holds'] else 'no',
      record['reason'],
      '\n'.join(f'{_words(name)}: {_brief(value)}' for name, value in record['witness'].items()),
      '\n'.join(f'{_words(name)}: {_brief(value)}' for name, value in record['closeness'].items()),
    )
  return table


def _construction_table(records: list[Record]) -> rich.table.Table:
  title = 'What each construction achieves: its agreement with the exact label, in percent'
  table = rich.table.Table(title=title, box=rich.box.SIMPLE)
  table.add_column('construction', no_wrap=True)
  table.add_column('exists')
  table.add_column('texts', max_width=26)
  for title in ('possible', 'majority', 'agree', 'in\nregion', 'agree', 'clearly\nwrong', 'near\nties'):
    table.add_column(title, justify='right', no_wrap=True)
  for record in records:
    exists = record['exists'] if 'exists' in record else record['built']
    name, answer = record['statement'], {True: 'yes', False: 'no', None: '?'}[exists]
    kinds = [kind for kind in ('enumerated', 'sampled') if kind in record]
    if not kinds:
      table.add_row(name, answer, *_reason_cells(record))
    for kind in kinds:
      table.add_row(name, answer, *_checked_cells(kind, record[kind]))
      name = answer = ''
  return table


def _reason_cells(record: Record) -> list[str]:
  """Of the linear program; or of a construction, the assumption that fails, which its own table explains."""
  if 'longest' not in record:
    return [record['reason'].partition(':')[0]]
  return [f'every one up to length {record["longest"]}: {record["reason"]}', f'{record["sequences"]:,}']


def _checked_cells(kind: str, checked: Record) -> list[str]:
  texts = 'every one up to' if kind == 'enumerated' else 'sampled, of'
  return [
    f'{texts} length {checked["longest"]}',
    f'{checked["sequences"]:,}',
    _percent(checked['majority']),
    _percent(checked['agreement']),
    f'{checked["in_region"]:,}',
    _percent(checked['agreement_in_region']),
    f'{checked["outside_margin_in_region"]:,}',
    f'{checked["ties_in_region"]:,}',
  ]


def _percent(share: float | None) -> str:
  """Rounded down, so that 100.00 is all of them."""
  return '' if share is None else f'{math.floor(1e4 * share) / 100:.2f}'


def _words(name: str) -> str:
  return name.replace('_', ' ')


def _brief(value: Any) -> str:
  """A number, or the first of many, for a reader."""
  if isinstance(value, dict):
    return ', '.join(f'{key}: {_brief(entry)}' for key, entry in value.items())
  if isinstance(value, list):
    shown = [_brief(entry) for entry in value[:_SHOWN]] + ['...'] * (len(value) > _SHOWN)
    is_vector = any(isinstance(entry, float) for entry in value)
    return f'({", ".join(shown)})' if is_vector else f'{{{", ".join(shown)}}}'
  if value is None:
    return 'infinite'
  if isinstance(value, bool):
    return 'yes' if value else 'no'
  return f'{value:.3g}' if isinstance(value, float) else str(value)
