"""A user's own HMM and task: the theorems that cover it, and the results of their constructions."""

from collections.abc import Iterator
import json
import math
from typing import Any

import jax
import numpy as np
import pandas as pd

from experiments.analysis.tables import Table, table
from experiments.records.results import Record
from experiments.settings.fields import digest
from experiments.studies.study import in_parts, Part, Study
from experiments.studies.theory import problem_file
from experiments.studies.theory.settings import ExamineSettings
from experiments.studies.theory.verification import errors_of, judged, RIGHT, TOLERANCE
from hmm_jax.theory import certificates, enumeration, scoring, theorems
from hmm_jax.theory.assumptions import AssumptionError
from hmm_jax.theory.masks import masks_needed
from hmm_jax.theory.problem import Problem, StateProblem
from hmm_jax.theory.scoring import Answers
from hmm_jax.tuning.best_head import relative_error
from hmm_jax.tuning.tasks import draw_texts, labelled

# By the kind of records: title, and fields that are shown.
_TABLES = {
  'assumption': (
    'Assumptions of the paper, and how close each is to failing or holding',
    ['statement', 'holds', 'reason', 'witness', 'closeness'],
  ),
  'task': (
    'Labels of all possible texts, and theorems that cover the task',
    ['statement', 'covered_by', 'warning', 'texts', 'sequences', 'majority', 'least_margin', 'margin'],
  ),
  'construction': (
    f'Constructions: relative errors above {TOLERANCE:g} in the region',
    ['statement', 'reason', 'texts', 'sequences', 'in_region', 'wrong', 'largest_error'],
  ),
  'linear program': ('Is a linear head right on all texts?', ['statement', 'outcome', 'length', 'sequences']),
  'masks': (
    '[MASK]s after which a linear head can give every score; ranks of 1, 2, ...',
    ['statement', 'masks', 'ranks', 'singular_value_ratios'],
  ),
}
_ONE_LABEL = 'all texts have one label: a constant is right'
# Up to this many states, ranks are proved; exact integers of more take minutes.
_MOST_PROVED = 6
# Entries of a witness that are printed, the first.
_SHOWN = 8


def parts(settings: ExamineSettings) -> dict[str, Part]:
  """The one part, whose name is another one if the file has changed; raises SettingsError for a bad file."""
  problem = problem_file.load(settings.distribution, settings.seed)
  content = digest([np.asarray(leaf).tolist() for leaf in jax.tree.leaves(problem)])
  return {f'examine-{content}': lambda settings, key, reporter: examined(problem, settings)}


def examined(problem: Problem, settings: ExamineSettings) -> list[Record]:
  """A record for each assumption, construction and kind of texts, and for the linear program where 3.1 fails.

  Every sequence up to the largest length T with V^T of at most `max_sequences` is checked, or every token, and sampled
  long sequences.
  """
  if isinstance(problem, StateProblem):
    numbers, names = ['3.1', '3.2', '3.5'], ['3.3', '3.6']
  else:
    numbers, names = ['3.2', '4.2', '4.4', 'start', '4.5'], ['4.3', '4.6' if problem.hmm.num_cells == 1 else 'C.6']
  findings = [theorems.finding(number, problem, settings.criteria) for number in numbers]
  records = [
    {'record': 'assumption', **finding._asdict(), 'thresholds': finding.thresholds._asdict()} for finding in findings
  ]
  # One token counts as two.
  longest = max(int(math.log(settings.max_sequences, max(problem.hmm.num_tokens, 2)) + 1e-9), 1)
  texts = {kind: scoring.answer(problem, tokens) for kind, tokens in _texts(problem, longest, settings).items()}
  constructions = [record for name in names for record in _construction(problem, name, texts, settings)]
  covered_by = sorted({record['statement'] for record in constructions if record['exists']})
  records += [_task(problem, kind, answers, covered_by) for kind, answers in texts.items()] + constructions
  if isinstance(problem, StateProblem):
    if not findings[0].holds:
      records.append(_linear_program(problem, longest, settings.margin))
    records += _masks(problem)
  return [_plain(record) for record in records]


def _texts(problem: Problem, longest: int, settings: ExamineSettings) -> dict[str, np.ndarray]:
  """Sequences [n, T] by their kind."""
  hmm, silent, length = problem.hmm, 0, settings.sampled_length
  if isinstance(problem, StateProblem):
    # The label is about a silent state, and the text follows it.
    hmm, silent = hmm.starting_from(problem.silent_probs), 1
  _, sampled = draw_texts(jax.random.key(settings.seed), hmm, 0, settings.num_sampled, length + silent)
  return {
    f'enumerated to length {longest}': enumeration.all_sequences(hmm.num_tokens, longest, longest),
    f'sampled, length {length}': np.asarray(sampled)[:, silent:],
  }


def _task(problem: Problem, kind: str, answers: Answers, covered_by: list[str]) -> Record:
  """The record of a kind of texts: mu, the share of the commonest label, and how close labels are to a tie.

  A margin is proven if it is larger than the rounding of the posterior can make it.
  """
  mu, posterior = problem.task_weights, answers.posterior[np.isfinite(answers.loglik)]
  task = labelled(mu, posterior)
  majority = np.bincount(task.labels).max() / len(posterior)
  rounding = 2 * relative_error(problem.hmm, answers.tokens.shape[1] + 1) * (posterior @ np.abs(mu).T).max(-1)
  return {
    'record': 'task',
    'statement': 'Task',
    'covered_by': covered_by,
    'task_weights': mu,
    'texts': kind,
    'sequences': len(posterior),
    'majority': majority,
    'warning': _ONE_LABEL if majority == 1 else None,
    'least_margin': task.margins.min(),
    'margin': 'proven' if (task.margins > rounding).all() else 'rounding',
  }


def _construction(
  problem: Problem, theorem: str, texts: dict[str, Answers], settings: ExamineSettings
) -> Iterator[Record]:
  """A record for each kind of texts, or one that says why there is no construction."""
  record = {'record': 'construction', 'statement': f'Theorem {theorem}'}
  for kind, answers in texts.items():
    length = answers.tokens.shape[1]
    try:
      program = theorems.program(theorem, problem, length, settings.criteria)
    except AssumptionError as error:
      yield {**record, 'exists': False, 'reason': str(error)}
      return
    in_region = scoring.in_region(problem, program.finding, answers)
    errors = errors_of(problem, program, answers, {RIGHT: program})[RIGHT][in_region]
    built = theorems.construct(theorem, problem, length, settings.criteria)
    yield {
      **record,
      'exists': True,
      'texts': kind,
      'sequences': np.isfinite(answers.loglik).sum(),
      'in_region': len(errors),
      **judged(errors),
      'prompt': built.get('prompt'),
      'head': built['head']._asdict(),
    }


def _linear_program(problem: StateProblem, length: int, margin: float) -> Record:
  """Record if one linear head on G_1 gives every label whose gap is above `margin`, as `certificates.decide` says.

  An answer is proven but for `undecided`, which says that margins are rounding.
  """
  decision = certificates.decide(problem, length, margin)
  return {
    'record': 'linear program',
    'statement': 'Linear head',
    'length': length,
    'sequences': len(decision.texts.labels),
    'outcome': decision.outcome,
  }


def _masks(problem: StateProblem) -> list[Record]:
  """A record for each way to read the [MASK]s before a text."""
  proves = problem.hmm.num_states <= _MOST_PROVED
  needed = masks_needed(problem.hmm, proves)
  of_both = {'record': 'masks', 'future_rank': needed.future_rank, 'proved': proves}
  counts = {'joint law of masks': needed.joint, 'marginals of masks': needed.marginals}
  return [{**of_both, 'statement': name, **count._asdict()} for name, count in counts.items()]


def _plain(fields: Record) -> Record:
  """The fields as JSON: arrays as lists, keys as texts, null for what is not finite."""
  return json.loads(json.dumps(fields, default=lambda array: array.tolist()), parse_constant=lambda _: None)


def _tables(records: pd.DataFrame, settings: Any) -> dict[str, Table]:
  """A table of each kind of records."""
  made = {}
  for kind, (title, fields) in _TABLES.items():
    rows = records[records['record'] == kind]
    if len(rows):
      cells = rows.reindex(columns=fields).map(_cell, na_action='ignore')
      made[kind] = table(title, cells.rename(columns=lambda field: field.replace('_', ' ')), num_texts=5)
  return made


def _cell(value: Any) -> str:
  """A number, the first of many, or each by its name."""
  if isinstance(value, dict):
    return '; '.join(f'{name.replace("_", " ")}: {_cell(entry)}' for name, entry in value.items())
  if isinstance(value, list):
    return ', '.join(map(_cell, value[:_SHOWN]))
  return f'{value:.7g}' if isinstance(value, float) else str(value)


STUDY = Study(in_parts(parts), _tables, check=lambda settings, _: parts(settings))
