"""A user's own HMM and task: the assumptions that hold, and the results of the constructions that apply."""

from collections.abc import Iterator
import json
import pathlib
import textwrap
from typing import Any

import jax
import numpy as np
import pandas as pd

from experiments.analysis.tables import format_number, Table
from experiments.records import environment, results
from experiments.records.results import Record
from experiments.runtime import locks
from experiments.runtime.progress import Reporter
from experiments.studies.study import Study
from experiments.studies.theory import problem_file
from experiments.studies.theory.problems import majority
from experiments.studies.theory.settings import ExamineSettings, longest_length
from hmm_jax.models.sharding import float64_device
from hmm_jax.theory import assumptions, certificates, comparison, enumeration, texts, theorems
from hmm_jax.theory.assumptions import AssumptionError
from hmm_jax.theory.comparison import Comparison, PredictedProblem
from hmm_jax.theory.masks import masks_needed
from hmm_jax.theory.problem import MemoryProblem, Problem, StateProblem

# The columns of the tables, by the fields of records.
_ASSUMPTIONS = {
  'statement': 'assumption',
  'holds': 'holds',
  'reason': 'why',
  'witness': 'witness',
  'closeness': 'closeness',
}
_CONSTRUCTIONS = {
  'statement': 'construction',
  'exists': 'exists',
  'texts': 'texts',
  'sequences': 'possible',
  'majority': 'majority',
  'agreement': 'agree',
  'in_region': 'in\nregion',
  'agreement_in_region': 'agree\nthere',
  'outside_margin_in_region': 'clearly\nwrong',
  'ties_in_region': 'near\nties',
}
_MASKS = {
  'statement': 'a linear head reads',
  'masks': 'least number of masks\nfor every task',
  'ranks': 'rank with 1, 2, ... masks',
  'singular_value_ratios': 'smallest singular value\nover the largest',
}
# Up to this many states, ranks are proved; exact integers of more take minutes.
_MOST_PROVED = 6
_SHARES = ['majority', 'agreement', 'agreement_in_region']
# By the outcome of `certificates.decide`: is a linear head right on all sequences, and why.
_DECISIONS = {
  'constant': (True, 'all labels are equal, near ties excluded'),
  'separable': (True, 'the linear program found a head'),
  'certified': (False, 'a certificate, confirmed in exact arithmetic, excludes every head'),
  'undecided': (None, 'neither a head nor a certificate was found'),
}
# Entries of a witness, and columns of a cell, that are printed.
_SHOWN = 8
_WIDTH = 22


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
  # Scale mu by the power of two, which is exact, that brings its largest contrast into [1, 2).
  _, exponent = np.frexp(np.abs(assumptions.contrasts(problem.task_weights)).max())
  problem = problem._replace(task_weights=np.ldexp(problem.task_weights, 1 - exponent))
  text: Any = problem.hmm
  if isinstance(problem, MemoryProblem):
    numbers, names = ['3.2', '4.2', '4.4', 'start', '4.5'], ['4.3', '4.6' if problem.hmm.num_cells == 1 else 'C.6']
    silent = 0
  else:
    numbers, names = ['3.1', '3.2', '3.5'], ['3.3', '3.6']
    # The label is about a silent state, and the text follows it.
    text, silent = problem.hmm.starting_from(problem.silent_probs), 1
  longest = longest_length(problem.hmm.num_tokens, settings.max_sequences)
  scored_texts = {'enumerated to length': texts.all_sequences(problem.hmm.num_tokens, longest)} if longest else {}
  key, length = jax.random.key(settings.seed), settings.sampled_length + silent
  scored_texts['sampled, length'] = texts.sampled(text, key, settings.num_sampled, length)[:, silent:]
  findings = {number: theorems.finding(number, problem, settings.criteria) for number in numbers}
  records = [
    _plain({'record': 'assumption', **finding._asdict(), 'thresholds': finding.thresholds._asdict()})
    for finding in findings.values()
  ]
  for theorem in names:
    records += _construction(problem, theorem, scored_texts, settings)
  if isinstance(problem, StateProblem) and not findings['3.1'].holds and longest:
    records.append(_linear_program(problem, longest, settings.margin))
  if isinstance(problem, StateProblem):
    records += _masks(problem)
  return records


def _masks(problem: StateProblem) -> Iterator[Record]:
  """A record for each way to read the [MASK]s before a text."""
  proves = problem.hmm.num_states <= _MOST_PROVED
  needed = masks_needed(problem.hmm, proves)
  for read, count in ('joint law', needed.joint), ('marginals', needed.marginals):
    of_all = {'future_rank': needed.future_rank, 'proved': proves}
    yield {'record': 'masks', 'statement': f'{read} of masks', **count._asdict(), **of_all}


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
    predictions = comparison.predicted(problem, program, tokens)
    in_region = predictions.possible & comparison.has_sure_position(problem, program, tokens)
    has_mass = in_region & predictions.posterior[:, program.recovered].any(-1)
    result = comparison.compared(PredictedProblem(problem, program, predictions, has_mass), program)
    agreement = _agreement(result, predictions.possible, in_region, settings.margin)
    yield {**record, 'exists': True, 'texts': f'{kind} {length}', **agreement}


def _agreement(result: Comparison, possible: np.ndarray, in_region: np.ndarray, margin: float) -> Record:
  """Agreement of the construction on all possible sequences, and on those in its theorem's region."""
  is_tie = result.gap <= margin
  return {
    'sequences': int(possible.sum()),
    'majority': majority(result.label[possible]),
    'agreement': float(1 - result.off_label[possible].mean()),
    'in_region': int(in_region.sum()),
    'agreement_in_region': float(1 - result.off_label[in_region].mean()) if in_region.any() else None,
    'outside_margin_in_region': int((in_region & result.off_label & ~is_tie).sum()),
    'ties_in_region': int((in_region & is_tie).sum()),
  }


def _linear_program(problem: StateProblem, length: int, margin: float) -> Record:
  """Record if one linear head on G_1 gives every label whose gap is above `margin`; `exists` is None if undecided."""
  possible = enumeration.possible_texts(problem, length)
  clear = possible.selected(possible.gaps > margin)
  count = len(clear.labels)
  record = {'record': 'linear program', 'statement': 'Linear head', 'length': length, 'sequences': count}
  if not count:
    return {**record, 'exists': True, 'reason': 'all labels are near ties'}
  try:
    decision = certificates.decide(problem, clear, margin)
  except RuntimeError as error:
    return {**record, 'exists': None, 'reason': f'the linear program failed ({error})'}
  exists, reason = _DECISIONS[decision.outcome]
  record |= {'exists': exists, 'reason': reason}
  if decision.proof:
    # Each text of the proof has a weight and a class that its label is weighed against.
    places, others = decision.proof.pairs.T
    witness = {'tokens': clear.tokens[places], 'label': clear.labels[places], 'other': others}
    record['certificate'] = {**witness, 'weight': decision.proof.weights, 'residual': decision.proof.residual}
  return _plain(record)


def _tables(records: pd.DataFrame, settings: ExamineSettings) -> dict[str, Table]:
  """Assumptions, and constructions with the linear program, each 120 columns wide at most."""
  is_assumption, is_masks = records['record'] == 'assumption', records['record'] == 'masks'
  # If no construction exists there are no numbers, and if all exist no reasons.
  constructions = records[~(is_assumption | is_masks)].reindex(columns=[*_CONSTRUCTIONS, 'reason'])
  # The row of a failed assumption has the details.
  constructions['texts'] = constructions['texts'].astype(object).fillna(constructions['reason'].str.partition(':')[0])
  # In percent, rounded down, so that 100 is all of them.
  constructions[_SHARES] = np.floor(1e4 * constructions[_SHARES].astype(float)) / 100
  cells = lambda rows, columns: rows[[*columns]].map(_cell).rename(columns=columns)
  title = 'Agreement of each construction with the exact label in percent'
  tables = {
    'assumptions': Table(
      'Assumptions of the paper, and how close each is to failing or holding',
      cells(records[is_assumption], _ASSUMPTIONS),
      5,
    ),
    'constructions': Table(title, cells(constructions, _CONSTRUCTIONS), 3),
  }
  if is_masks.any():
    of_masks = cells(records[is_masks].fillna({'masks': 'no number'}), _MASKS)
    tables['masks'] = Table('[MASK]s before a text, after which a linear head can give every score', of_masks, 1)
  return tables


def _cell(value: Any) -> str:
  """An answer, a number, or words on lines."""
  if isinstance(value, bool):
    return 'yes' if value else 'no'
  if isinstance(value, float):
    return format_number(value, ',.7g')
  return textwrap.fill(_brief(value), _WIDTH)


def _brief(value: Any) -> str:
  """A number, the first of many, or each by its name."""
  if isinstance(value, dict):
    return '; '.join(f'{name.replace("_", " ")}: {_brief(entry)}' for name, entry in value.items())
  if isinstance(value, list):
    return f'({", ".join([_brief(entry) for entry in value[:_SHOWN]] + ["..."] * (len(value) > _SHOWN))})'
  if value is None:
    return 'infinite'
  return f'{value:.3g}' if isinstance(value, float) else str(value)


STUDY = Study(_run, _tables, check=_check)
