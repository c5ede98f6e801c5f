"""A user's HMM and task held against every assumption, and each construction tried on it."""

from collections.abc import Callable
import math
from typing import Any

import jax
import numpy as np
import rich.box
import rich.table

from experiments.theory.hmm_file import Problem
from hmm_jax.blocks import in_blocks
from hmm_jax.theory import assumptions
from hmm_jax.theory import certificates
from hmm_jax.theory import recovery
from hmm_jax.theory import scoring
from hmm_jax.theory import separability
from hmm_jax.theory.assumptions import AssumptionError
from hmm_jax.theory.assumptions import Finding
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.structured import MemoryProblem
from hmm_jax.theory.structured import StateProblem

Array = jax.Array
Record = dict[str, Any]
# tokens [n, T] -> arrays with leading axis n, such as an `Evaluation`.
Evaluate = Callable[[np.ndarray], tuple[np.ndarray, ...]]

# Entries of the likelihood rows that are evaluated at a time; XLA folds constants of the size of a batch.
_BLOCK_ENTRIES = 2**17
# Entries of a witness that are printed.
_SHOWN = 8


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
    texts = {'enumerated': scoring.all_sequences(problem.hmm.num_tokens, longest), **texts}
  if isinstance(problem, StateProblem):
    findings, constructions = _examine_states(problem, thresholds, max_nodes)
  else:
    findings, constructions = _examine_memory(problem, thresholds, tolerance)
  records = [_assumption(finding) for finding in findings]
  records += [_construction(problem, name, make, texts, margin) for name, make in constructions.items()]
  degenerate = any(finding.statement == 'Assumption 3.1' and not finding.holds for finding in findings)
  if isinstance(problem, StateProblem) and degenerate and longest:
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
  if isinstance(problem, MemoryProblem):
    return scoring.sampled(problem.hmm, key, count, length)
  return scoring.sampled(problem.hmm.starting_from(problem.silent_probs), key, count, length + 1)[:, 1:]


# What makes a construction for texts of length T, and evaluates it on them; raises AssumptionError.
_Make = Callable[[int], Evaluate]


def _examine_states(
  problem: StateProblem, thresholds: Thresholds, max_nodes: int
) -> tuple[list[Finding], dict[str, _Make]]:
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
      return lambda tokens: scoring.evaluate_states(hmm, silent_probs, mu, built, tokens)

    return make

  return findings, {
    'Theorem 3.3': evaluated(lambda: recovery.theorem_3_3(hmm, mu, silent_probs, thresholds)),
    'Theorem 3.6': evaluated(lambda: recovery.theorem_3_6(hmm, mu, silent_probs, thresholds, max_nodes)),
  }


def _examine_memory(
  problem: MemoryProblem, thresholds: Thresholds, tolerance: float
) -> tuple[list[Finding], dict[str, _Make]]:
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
      return lambda tokens: scoring.evaluate_memory(hmm, cell, mu, built, finding, tokens)

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
    found = _in_blocks(evaluate, tokens, problem.hmm.joint_initial_probs.size)
    checked[kind] = {'longest': tokens.shape[1], **_agreement(found, margin)}
  return {**record, 'built': True, 'reason': 'its assumptions hold', **checked}


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
    'disagreements_in_region': inside.disagreements,
    'outside_margin_in_region': inside.outside_margin,
    'ties_in_region': inside.ties,
    'smallest_gap_in_region': inside.smallest_gap,
  }
  return _plain(fields)


def _in_blocks(evaluate: Evaluate, tokens: np.ndarray, num_states: int) -> Any:
  """`evaluate(tokens)`, as many sequences at a time as bounds the memory of their messages."""
  most = max(_BLOCK_ENTRIES // (tokens.shape[1] * num_states), 1)
  return in_blocks(evaluate, tokens, min(most, len(tokens)))


def _linear_program(problem: StateProblem, tokens: np.ndarray, margin: float) -> Record:
  """Whether any linear head on G_1 has the labels that no near tie decides, of all sequences at once."""
  hmm, silent_probs, mu, _ = problem
  labelled = hmm.starting_from(silent_probs)
  features, *_ = _in_blocks(lambda block: scoring.first_predictions(hmm, mu, block), tokens, hmm.num_states)
  _, scores, possible = _in_blocks(lambda block: scoring.first_predictions(labelled, mu, block), tokens, hmm.num_states)
  chosen = possible & (scoring.score_gaps(scores) > margin)
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
  confirmed = certificates.is_exact(hmm, silent_probs, mu, tokens, labels, found)
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
