"""A user's own HMM and task: which assumptions hold, and what the constructions that apply give."""

from collections.abc import Iterator
import functools
import json
import pathlib
import textwrap
from typing import Any

import jax
import numpy as np
import pandas as pd

from experiments.analysis.tables import number, Table, table
from experiments.records import environment, results
from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.studies.study import Study
from experiments.studies.theory import problem_file
from experiments.studies.theory.settings import ExamineSettings, longest_length
from hmm_jax.blocks import even_size, in_blocks
from hmm_jax.sharding import exact_device
from hmm_jax.theory.exact.problem import MemoryProblem, Problem, StateProblem
from hmm_jax.theory.limits import certificates
from hmm_jax.theory.problems import texts
from hmm_jax.theory.problems.enumeration import Texts
from hmm_jax.theory.theorems import assumptions, scoring, theorems
from hmm_jax.theory.theorems.assumptions import AssumptionError

# The columns of numbers of the table of constructions.
_COLUMNS = {
  'sequences': 'possible',
  'majority': 'majority',
  'agreement': 'agree',
  'in_region': 'in\nregion',
  'agreement_in_region': 'agree\nthere',
  'outside_margin_in_region': 'clearly\nwrong',
  'ties_in_region': 'near\nties',
}
_SHARES = ['majority', 'agreement', 'agreement_in_region']
_OF_REGION = ('disagreements', 'outside_margin', 'ties', 'smallest_gap')
# Proofs that are tried among the first 2, 4, 8, ... sequences.
_MAX_PROOFS = 4
# Whether a linear head is right on all sequences, and why, by what `certificates.decide` finds.
_DECISIONS = {
  'constant': (True, 'all labels that no near tie decides are equal'),
  'separable': (True, 'the linear program found one'),
  'certified': (False, 'a certificate, confirmed in exact arithmetic'),
  'undecided': (None, 'neither a head nor a certificate was found'),
}
# Entries of the likelihood rows that are evaluated at a time; XLA folds constants of the size of a batch.
_BLOCK_ENTRIES = 2**17
# Entries of a witness, and columns of a cell, that are printed.
_SHOWN = 8
_WIDTH = 28


def _check(settings: ExamineSettings) -> None:
  """Raises SettingsError where the user's file is not what it should be."""
  problem_file.load(settings.hmm_file)


def _run(settings: ExamineSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Examines the file, anew on every call."""
  reporter.say(f'examining {settings.hmm_file}')
  with jax.default_device(exact_device()):
    records = examined(problem_file.load(settings.hmm_file), settings)
  made = {'environment': environment.keep(workdir, environment.environment([exact_device()]))}
  results.write(workdir, settings, [record | made for record in records])


def examined(problem: Problem, settings: ExamineSettings) -> list[Record]:
  """A record for each assumption and each construction that applies, and for the linear program where 3.1 fails.

  Every sequence up to the largest length T with V^T of at most `max_sequences` is checked, and sampled long ones.
  """
  problem = problem._replace(task_weights=_scaled(problem.task_weights))
  key, num_tokens = jax.random.key(settings.seed), problem.hmm.num_tokens
  longest = longest_length(num_tokens, settings.max_sequences)
  found = {'enumerated': texts.all_sequences(num_tokens, longest)} if longest else {}
  if isinstance(problem, MemoryProblem):
    numbers, names = ['3.2', '4.2', '4.4', 'start', '4.5'], ['4.3', '4.6' if problem.hmm.num_cells == 1 else 'C.6']
    found['sampled'] = texts.sampled(problem.hmm, key, settings.num_sampled, settings.sampled_length)
  else:
    numbers, names = ['3.1', '3.2', '3.5'], ['3.3', '3.6']
    # The label speaks of a silent state, and the text follows it.
    after_silent = problem.hmm.starting_from(problem.silent_probs)
    found['sampled'] = texts.sampled(after_silent, key, settings.num_sampled, settings.sampled_length + 1)[:, 1:]
  findings = {number: theorems.finding(number, problem, settings.limits) for number in numbers}
  records = [
    _plain({'record': 'assumption', **finding._asdict(), 'thresholds': finding.thresholds._asdict()})
    for finding in findings.values()
  ]
  for theorem in names:
    records += _construction(problem, theorem, found, settings)
  if isinstance(problem, StateProblem) and not findings['3.1'].holds and longest:
    records.append(_linear_program(problem, found['enumerated'], settings))
  return records


def _scaled(task_weights: np.ndarray) -> np.ndarray:
  """mu over the power of two, which rounds nothing, that brings its largest contrast into [1, 2)."""
  _, exponent = np.frexp(np.abs(assumptions.contrasts(task_weights)).max())
  return np.ldexp(task_weights, 1 - exponent)


def _plain(fields: Record) -> Record:
  """As JSON has it: arrays as lists, keys as texts, null for what is not finite."""
  text = json.dumps(fields, default=lambda array: array.tolist())
  return json.loads(text, parse_constant=lambda _: None)


def _construction(
  problem: Problem, theorem: str, texts: dict[str, np.ndarray], settings: ExamineSettings
) -> Iterator[Record]:
  """A record for each kind of texts, or one that says why there is no construction."""
  record = {'record': 'construction', 'statement': f'Theorem {theorem}'}
  for kind, tokens in texts.items():
    try:
      evaluate = theorems.evaluator(theorem, problem, tokens.shape[1], settings.limits)
    except AssumptionError as error:
      yield {**record, 'exists': False, 'reason': str(error)}
      return
    agreement = _agreement(_in_blocks(evaluate, problem, tokens), settings.margin)
    yield {**record, 'exists': True, 'texts': kind, 'longest': tokens.shape[1], **agreement}


def _in_blocks(evaluate: Any, problem: Problem, tokens: np.ndarray) -> Any:
  """`evaluate(tokens)`, as many sequences at a time as bounds the memory of their messages."""
  size = even_size(len(tokens), tokens.shape[1] * problem.hmm.joint_initial_probs.size, _BLOCK_ENTRIES)
  return in_blocks(evaluate, tokens, size)


def _agreement(found: scoring.Evaluation, margin: float) -> Record:
  """Agreement of the construction on all sequences, and on those that its theorem speaks of."""
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


def _linear_program(problem: StateProblem, tokens: np.ndarray, settings: ExamineSettings) -> Record:
  """Decide if one linear head on G_1 has the labels of all sequences that are no near tie."""
  predict = functools.partial(scoring.first_predictions, problem)
  features, scores, possible = _in_blocks(predict, problem, tokens)
  gaps = scoring.score_gaps(scores)
  every = Texts(tokens, np.ones(len(tokens)), features, scores.argmax(-1), gaps)
  chosen = every.where(possible & (gaps > settings.margin))
  num_chosen = len(chosen.labels)
  record = {'record': 'linear program', 'statement': 'Linear head', 'longest': tokens.shape[1]}
  record |= {'sequences': num_chosen, 'near_ties': int(possible.sum()) - num_chosen}
  if not num_chosen:
    return {**record, 'exists': True, 'reason': 'all labels are decided by near ties'}
  try:
    found = certificates.decide(problem, chosen, settings.margin, _MAX_PROOFS)
  except RuntimeError as error:
    return {**record, 'exists': None, 'reason': f'the linear program was given up ({error})'}
  exists, reason = _DECISIONS[found.outcome]
  record |= {'exists': exists, 'reason': reason}
  if not found.proof:
    return record
  text_of = lambda index: [token for token in chosen.tokens[index].tolist() if token < problem.hmm.num_tokens]
  certificate = [
    {'tokens': text_of(index), 'label': int(chosen.labels[index]), 'other': other, 'weight': weight}
    for (index, other), weight in zip(found.proof.pairs.tolist(), found.proof.weights.tolist())
  ]
  num_texts = len(np.unique(found.proof.pairs[:, 0]))
  return {**record, 'residual': found.proof.residual, 'certificate_sequences': num_texts, 'certificate': certificate}


def _tables(records: pd.DataFrame, settings: ExamineSettings) -> dict[str, Table]:
  """Assumptions, and constructions with the linear program, each 120 columns wide at most."""
  del settings
  is_assumption = records['record'] == 'assumption'
  return {
    'assumptions': _assumptions(records[is_assumption].to_dict('records')),
    'constructions': _constructions(records[~is_assumption]),
  }


def _assumptions(records: list[Record]) -> Table:
  listed = lambda fields: '\n'.join(
    textwrap.fill(f'{name.replace("_", " ")}: {_brief(value)}', _WIDTH) for name, value in fields.items()
  )
  rows = [
    {
      'assumption': record['statement'].removeprefix('Assumption '),
      'holds': 'yes' if record['holds'] else 'no',
      'why': textwrap.fill(record['reason'], _WIDTH),
      'witness': listed(record['witness']),
      'closeness': listed(record['closeness']),
    }
    for record in records
  ]
  return table('Assumptions of the paper, and how close each is to the other answer', rows, 5)


def _brief(value: Any) -> str:
  """A number, or the first of many."""
  if isinstance(value, dict):
    value = [f'{key}: {_brief(entry)}' for key, entry in value.items()]
  if isinstance(value, list):
    return f'({", ".join([_brief(entry) for entry in value[:_SHOWN]] + ["..."] * (len(value) > _SHOWN))})'
  if value is None:
    return 'infinite'
  return f'{value:.3g}' if isinstance(value, float) else str(value)


def _constructions(records: pd.DataFrame) -> Table:
  records = records.reindex(columns=records.columns.union([*_COLUMNS, 'longest', 'texts']))
  # Rounded down, so that 100.00 is all of them.
  percent = np.floor(1e4 * records[_SHARES].astype(float)) / 100
  cells = records[list(_COLUMNS)].astype(float).map(lambda count: number(count, ',.0f'))
  cells[_SHARES] = percent.map(lambda share: number(share, '.2f'))
  words = {
    'construction': records['statement'],
    'exists': records['exists'].map({True: 'yes', False: 'no'}).fillna('?'),
    'texts': [textwrap.fill(_texts(record), _WIDTH) for record in records.to_dict('records')],
  }
  frame = pd.DataFrame(words).join(cells.rename(columns=_COLUMNS))
  return Table('What each construction achieves: its agreement with the exact label, in percent', frame, 3)


def _texts(record: Record) -> str:
  if np.isnan(record['longest']):
    # The assumption that fails, which has a row of its own.
    return record['reason'].partition(':')[0]
  if record['texts'] == 'sampled':
    return f'sampled, of length {record["longest"]:.0f}'
  why = f': {record["reason"]}' if record['record'] == 'linear program' else ''
  return f'every one up to length {record["longest"]:.0f}{why}'


STUDY = Study(_run, _tables, check=_check)
