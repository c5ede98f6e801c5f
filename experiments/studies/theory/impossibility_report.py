"""What is known of linear heads on random HMMs, and what trained ones reach: tables, and a section of a page."""

import numpy as np

from experiments.analysis import statistics
from experiments.records.results import Record
from experiments.studies.theory.tables import briefly, counted, mean_percent, range_of, Table

_KINDS = {'sparse': 'sparse', 'paper': "paper's draw"}
_OUTCOMES = {
  'certified': 'none (certified)',
  'separable': 'one exists',
  'constant': 'constant label',
  'undecided': 'undecided',
}
_SCORED_ON = {'fresh': 'a fresh text', 'unseen': 'an unseen text'}
_METHODS = {
  'program': "program's head",
  'converged': 'converged head',
  'head': 'trained head',
  'prompt': 'trained prompt',
  'construction': 'Theorem 3.6',
}
# Differences, paired over HMMs, that sentences speak of.
_CONTRASTS = {
  ('converged', 'head'): 'the converged head minus the head trained by the protocol',
  ('prompt', 'head'): 'the trained prompt minus the head trained by the same protocol',
  ('prompt', 'converged'): 'the trained prompt minus the converged head',
}


def tables(records: list[Record]) -> list[Table]:
  """What is known of linear heads by kind of draw, and accuracies by kind and outcome."""
  return [_known(records), _accuracies(records)]


def impossibility_section(records: list[Record]) -> str:
  """Markdown: the tables and what follows from them, every number from the records of the part `impossibility`."""
  known, accuracies = tables(records)
  sentences = [_about_heads(name, statistics.select(records, kind=kind)) for kind, name in _present(records)]
  comparisons = [
    line for kind, name in _present(records) for line in _about_training(name, statistics.select(records, kind=kind))
  ]
  return '\n\n'.join(
    [
      known.markdown(),
      '\n'.join(sentences),
      accuracies.markdown(),
      _LEGEND,
      '\n'.join([*comparisons, _about_construction(records)]),
    ]
  )


_LEGEND = (
  'Accuracies are in percent, means over HMMs with 95% intervals; each is a probability under the HMM, computed and '
  'not sampled, of a fresh text or of one that is not among the training texts, with the commonest label by the same '
  "weights beside it. The program's head is what the linear program found for the most of the likeliest texts. "
  'The converged head is logistic regression on the training texts at its optimum, in float64 with a ridge; head and '
  'prompt are trained by the protocol on the same texts. HMMs with a constant label take no part.'
)


def _present(records: list[Record]) -> list[tuple[str, str]]:
  return [(kind, name) for kind, name in _KINDS.items() if statistics.select(records, kind=kind)]


def _known(records: list[Record]) -> Table:
  rows = []
  for kind, name in _present(records):
    of_kind = statistics.select(records, kind=kind)
    certified = statistics.select(of_kind, outcome='certified')
    rows.append(
      [
        name,
        *(briefly([record['outcome'] == outcome for record in of_kind]) for outcome in _OUTCOMES),
        str(max((record['proof_texts'] for record in certified), default='')),
        range_of([record['least_error'] for record in certified]),
        f'{max(record["near_ties"] for record in of_kind):.1g}',
      ]
    )
  title = (
    'Is any linear head on G right on all texts? HMMs with more states than tokens [95% interval of the share, percent]'
  )
  columns = ['draws', *_OUTCOMES.values(), 'texts of a proof', 'error of any head, at least', 'near ties']
  return Table(title, columns, rows, 1)


def _accuracies(records: list[Record]) -> Table:
  rows = []
  for kind, name in _present(records):
    for outcome, head in _OUTCOMES.items():
      chosen = [r for r in statistics.select(records, kind=kind, outcome=outcome) if r['fresh_majority'] is not None]
      if chosen:
        rows += [[name, head, words, *_cells(chosen, scored_on)] for scored_on, words in _SCORED_ON.items()]
  title = 'The probability of a right label, in percent: means over HMMs and their 95% intervals'
  columns = ['draws', 'linear head', 'scored on', 'HMMs', 'probability', 'majority', *_METHODS.values()]
  return Table(title, [*columns, 'HMMs of 3.6'], rows, 3)


def _cells(records: list[Record], scored_on: str) -> list[str]:
  values = {
    name: [record[f'{scored_on}_{name}'] for record in records] for name in ('probability', 'majority', *_METHODS)
  }
  num_constructed = sum(value is not None for value in values['construction'])
  return [str(len(records)), *map(mean_percent, values.values()), str(num_constructed)]


def _about_heads(name: str, records: list[Record]) -> str:
  """Which HMMs have a linear head, and what the proofs amount to."""
  of = {outcome: statistics.select(records, outcome=outcome) for outcome in _OUTCOMES}
  is_certified = lambda rows: counted([record['outcome'] == 'certified' for record in rows])
  text = (
    f'- {name}: {is_certified(records)} of the draws have a proof, checked in exact arithmetic, that no linear head '
    f'gives every label. A linear head exists in {len(of["separable"])}, the label is constant in '
    f'{len(of["constant"])}, and {len(of["undecided"])} stay undecided. Where labels differ, proofs are '
    f'{is_certified([record for record in records if record["outcome"] != "constant"])}.'
  )
  errors = [record['least_error'] for record in of['certified']]
  if not errors:
    return text
  best = [max(1 - record['fresh_program'], 0.0) for record in of['certified']]
  return (
    f'{text} Not right on all texts need not be far from it. The error that a proof shows for every linear head, the '
    f'probability of the least likely of its texts, is {range_of(errors)} (median, least and largest) and above 0.001 '
    f'in {sum(error > 1e-3 for error in errors)} of {len(errors)}. The linear program has a head with error '
    f'{range_of(best)}, below 0.001 in {sum(error < 1e-3 for error in best)}.'
  )


def _about_training(name: str, records: list[Record]) -> list[str]:
  """What differs among certified HMMs, as far as intervals tell; and what training missed where a head exists."""
  certified, separable = (statistics.select(records, outcome=outcome) for outcome in ('certified', 'separable'))
  lines = []
  for scored_on, words in _SCORED_ON.items():
    differences = {said: _paired(certified, scored_on, *pair) for pair, said in _CONTRASTS.items()}
    found = [f'{said}: {_with_verdict(values)}' for said, values in differences.items() if len(values) > 2]
    lines += [f'- {name}, certified, on {words}, paired over HMMs, in points: {"; ".join(found)}.'] if found else []
  if separable:
    reached = {method: mean_percent([record[f'fresh_{method}'] for record in separable]) for method in _METHODS}
    lines.append(
      f'- {name}, where a linear head is right on every text (HMMs: {len(separable)}): on a fresh text the converged '
      f'head has {reached["converged"]}% and the head trained by the protocol {reached["head"]}%. What they lack of '
      '100 they did not find, rather than could not.'
    )
  return lines


def _paired(records: list[Record], scored_on: str, first: str, second: str) -> np.ndarray:
  pairs = [(record[f'{scored_on}_{first}'], record[f'{scored_on}_{second}']) for record in records]
  return np.array([100 * (one - other) for one, other in pairs if one is not None and other is not None])


def _with_verdict(difference: np.ndarray) -> str:
  interval = statistics.mean_interval(difference)
  differs = abs(interval.mean) > interval.half_width
  return f'{interval} ({"the interval leaves out 0" if differs else "no difference shown"})'


def _about_construction(records: list[Record]) -> str:
  """How the construction of Theorem 3.6 did wherever it applies and labels differ."""
  varied = [record for record in records if record['fresh_majority'] is not None]
  built = [record for record in varied if record['fresh_construction'] is not None]
  if not built:
    return '- Theorem 3.6 applies to none of the HMMs whose labels differ.'
  num_of_kind = lambda rows, kind: len(statistics.select(rows, kind=kind))
  counts = [f'{num_of_kind(built, kind)} of {num_of_kind(varied, kind)} ({name})' for kind, name in _present(records)]
  wrong = max(record['fresh_construction_wrong'] for record in built)
  accuracies = [record['fresh_construction'] for record in built]
  imprecise = [accuracy for accuracy in accuracies if accuracy < 1 - 1e-9]
  text = (
    f'- Theorem 3.6 applies to {", ".join(counts)} of the HMMs whose labels differ, at these sizes. Beyond rounding '
    f'its prompt and head are wrong with probability {wrong:.1g} at most.'
  )
  if not imprecise:
    return text
  return (
    f'{text} In {len(imprecise)} of these {len(built)} rounding decides some labels in float64: scores within 1e-12 of '
    f'the largest entry of the head count as ties, which class 0 has, and the accuracy is then '
    f'{100 * min(imprecise):.1f}% at least.'
  )
