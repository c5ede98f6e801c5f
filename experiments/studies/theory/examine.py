"""A user's own HMM and task: the assumptions that hold, and the results of the constructions that apply."""

from collections.abc import Iterator
import json
import pathlib
from typing import Any

import jax
import numpy as np
import pandas as pd

from experiments.analysis.tables import Table, table
from experiments.records import environment, results
from experiments.records.results import Record
from experiments.runtime import locks
from experiments.runtime.progress import Reporter
from experiments.studies.study import Study
from experiments.studies.theory import problem_file
from experiments.studies.theory.settings import ExamineSettings, longest_length
from experiments.studies.theory.verification import TOLERANCE
from hmm_jax.models.sharding import float64_device
from hmm_jax.theory import certificates, enumeration, scoring, texts, theorems
from hmm_jax.theory.assumptions import AssumptionError
from hmm_jax.theory.masks import masks_needed
from hmm_jax.theory.problem import MemoryProblem, Problem, StateProblem
from hmm_jax.theory.theorems import Program

# By the kind of records: title, and fields that are shown.
_TABLES = {
  'assumption': (
    'Assumptions of the paper, and how close each is to failing or holding',
    ('statement', 'holds', 'reason', 'witness', 'closeness'),
  ),
  'construction': (
    f'Constructions: labels of all possible texts, relative errors above {TOLERANCE:g} in the region',
    ('statement', 'reason', 'texts', 'sequences', 'majority', 'agreement', 'in_region', 'wrong', 'largest_error'),
  ),
  'linear program': ('Is a linear head right on all texts?', ('statement', 'outcome', 'length', 'sequences')),
  'masks': (
    '[MASK]s before a text, after which a linear head can give every score; ranks with 1, 2, ... masks',
    ('statement', 'masks', 'ranks', 'singular_value_ratios'),
  ),
}
# Up to this many states, ranks are proved; exact integers of more take minutes.
_MOST_PROVED = 6
# Entries of a witness that are printed, the first.
_SHOWN = 8


def _check(settings: ExamineSettings) -> None:
  """Raise SettingsError for a bad problem file."""
  problem_file.load(settings.distribution, settings.seed)


def _run(settings: ExamineSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Examine the file, anew on every call."""
  reporter.say(f'examining {settings.distribution}')
  with jax.default_device(float64_device()):
    records = examined(problem_file.load(settings.distribution, settings.seed), settings)
  made = {'environment': environment.keep(workdir, environment.environment([float64_device()]))}
  with locks.held(workdir, 'the merge of records', reporter):
    results.write(workdir, [(settings, [record | made for record in records])])


def examined(problem: Problem, settings: ExamineSettings) -> list[Record]:
  """A record for each assumption and each construction that applies, and for the linear program where 3.1 fails.

  Every sequence up to the largest length T with V^T of at most `max_sequences` is checked, and sampled long ones.
  """
  longest = longest_length(problem.hmm.num_tokens, settings.max_sequences)
  scored_texts = _texts(problem, longest, settings)
  if isinstance(problem, MemoryProblem):
    records = _assumptions(problem, ['3.2', '4.2', '4.4', 'start', '4.5'], settings)
    of_cells = '4.6' if problem.hmm.num_cells == 1 else 'C.6'
    for theorem in '4.3', of_cells:
      records += _construction(problem, theorem, scored_texts, settings)
    return records
  records = _assumptions(problem, ['3.1', '3.2', '3.5'], settings)
  is_degenerate = not records[0]['holds']
  for theorem in '3.3', '3.6':
    records += _construction(problem, theorem, scored_texts, settings)
  if is_degenerate and longest:
    records.append(_linear_program(problem, longest, settings.margin))
  return records + _masks(problem)


def _texts(problem: Problem, longest: int, settings: ExamineSettings) -> dict[str, np.ndarray]:
  """Sequences [n, T] by their kind."""
  hmm, silent, found = problem.hmm, 0, {}
  if longest:
    found['enumerated to length'] = texts.all_sequences(hmm.num_tokens, longest, longest)
  if isinstance(problem, StateProblem):
    # The label is about a silent state, and the text follows it.
    hmm, silent = hmm.starting_from(problem.silent_probs), 1
  sampled = texts.sampled(hmm, jax.random.key(settings.seed), settings.num_sampled, settings.sampled_length + silent)
  return found | {'sampled, length': sampled[:, silent:]}


def _assumptions(problem: Problem, numbers: list[str], settings: ExamineSettings) -> list[Record]:
  records = []
  for number in numbers:
    finding = theorems.finding(number, problem, settings.criteria)
    record = {'record': 'assumption', **finding._asdict(), 'thresholds': finding.thresholds._asdict()}
    records.append(_plain(record))
  return records


def _masks(problem: StateProblem) -> list[Record]:
  """A record for each way to read the [MASK]s before a text."""
  proves = problem.hmm.num_states <= _MOST_PROVED
  needed = masks_needed(problem.hmm, proves)
  records = []
  for statement, count in ('joint law of masks', needed.joint), ('marginals of masks', needed.marginals):
    names = {'record': 'masks', 'statement': statement, 'future_rank': needed.future_rank, 'proved': proves}
    records.append(names | count._asdict())
  return records


def _plain(fields: Record) -> Record:
  """The fields as JSON: arrays as lists, keys as texts, null for what is not finite."""
  text = json.dumps(fields, default=lambda array: array.tolist())
  return json.loads(text, parse_constant=lambda _: None)


def _construction(
  problem: Problem, theorem: str, texts: dict[str, np.ndarray], settings: ExamineSettings
) -> Iterator[Record]:
  """A record for each kind of texts, or one that says why there is no construction."""
  record = {'record': 'construction', 'statement': f'Theorem {theorem}'}
  for kind, tokens in texts.items():
    length = tokens.shape[1]
    try:
      program = theorems.program(theorem, problem, length, settings.criteria)
    except AssumptionError as error:
      yield {**record, 'exists': False, 'reason': str(error)}
      return
    yield {**record, 'exists': True, 'texts': f'{kind} {length}', **_scored(problem, program, tokens)}


def _scored(problem: Problem, program: Program, tokens: np.ndarray) -> Record:
  """Labels by the construction on all possible sequences, and its errors on those of its theorem's region."""
  answers = scoring.answer(problem, program.finding, tokens)
  predictions = scoring.predict(problem, program.prompt, program.finding, answers)
  scores = scoring.read(predictions, program.head)[:, :-1]
  posterior = answers.posterior[:, program.recovered]
  errors = scoring.relative_errors(scores, predictions.factor[:, None] * posterior)[answers.in_region]
  mu = problem.task_weights[:, program.recovered].T
  possible = answers.loglik > -np.inf
  # Of what has no mass all scores are 0 but for rounding.
  is_zero = ~posterior.any(-1, keepdims=True) & (np.abs(scores) <= TOLERANCE)
  labels = (answers.posterior @ problem.task_weights.T)[possible].argmax(-1)
  constructed = (np.where(is_zero, 0, scores) @ mu)[possible].argmax(-1)
  return {
    'sequences': len(labels),
    'majority': float(np.bincount(labels).max() / len(labels)),
    'agreement': float((labels == constructed).mean()),
    'in_region': len(errors),
    'wrong': int((~(errors <= TOLERANCE)).sum()),
    'largest_error': float(errors.max(initial=0)),
  }


def _linear_program(problem: StateProblem, length: int, margin: float) -> Record:
  """Record if one linear head on G_1 gives every label whose gap is above `margin`, as `certificates.decide` says."""
  possible = enumeration.possible_texts(problem, length)
  clear = possible.selected(possible.gaps > margin)
  count = len(clear.labels)
  record = {'record': 'linear program', 'statement': 'Linear head', 'length': length, 'sequences': count}
  if not count:
    return {**record, 'outcome': 'constant'}
  decision = certificates.decide(problem, clear, margin)
  record['outcome'] = decision.outcome
  if decision.proof:
    # Each text of the proof has a weight and a class that its label is weighed against.
    places, others = decision.proof.pairs.T
    witness = {'tokens': clear.tokens[places], 'label': clear.labels[places], 'other': others}
    record['certificate'] = {**witness, 'weight': decision.proof.weights, 'residual': decision.proof.residual}
  return _plain(record)


def _tables(records: pd.DataFrame, settings: ExamineSettings) -> dict[str, Table]:
  """A table of each kind of records."""
  made = {}
  for kind, (title, fields) in _TABLES.items():
    rows = records[records['record'] == kind]
    if len(rows):
      cells = rows.reindex(columns=[*fields]).map(_cell, na_action='ignore')
      made[kind] = table(title, cells.rename(columns=lambda field: field.replace('_', ' ')), num_texts=5)
  return made


def _cell(value: Any) -> str:
  """A number, the first of many, or each by its name."""
  if isinstance(value, dict):
    return '; '.join(f'{name.replace("_", " ")}: {_cell(entry)}' for name, entry in value.items())
  if isinstance(value, list):
    return ', '.join(map(_cell, value[:_SHOWN]))
  return f'{value:.7g}' if isinstance(value, float) else str(value)


STUDY = Study(_run, _tables, check=_check)
