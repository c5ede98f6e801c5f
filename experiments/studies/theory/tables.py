"""The tables of the theory experiment, from its records."""

from typing import Any

import pandas as pd

from experiments.analysis import statistics
from experiments.analysis.tables import median_range, share, Table, table

_KINDS = {'sparse': 'sparse', 'paper': "paper's draw"}
_OUTCOMES = {
  'certified': 'none (certified)',
  'separable': 'one exists',
  'constant': 'constant label',
  'undecided': 'undecided',
}
_SCORED_ON = {'fresh': 'a fresh text', 'unseen': 'an unseen text'}
_ACCURACIES = {
  'probability': 'probability',
  'majority': 'majority',
  'program': "program's head",
  'converged': 'converged head',
  'head': 'trained head',
  'prompt': 'trained prompt',
  'construction': 'Theorem 3.6',
}
_CONTRASTS = (('converged', 'head'), ('prompt', 'head'), ('prompt', 'converged'))


def tables(records: pd.DataFrame, settings: Any) -> dict[str, Table]:
  """Verification, claims of the proofs, linear heads, prevalence."""
  del settings
  # Each with a field that its records alone have.
  makers = {
    'theorems': (_theorems, 'assumptions'),
    'wrong_constructions': (_wrong_constructions, 'mutant'),
    'temperatures': (_temperatures, 'temperature'),
    'claims': (_claims, 'claim'),
    'gaps': (_gaps, 'gap_denominator'),
    'linear_heads': (_linear_heads, 'outcome'),
    'accuracies': (_accuracies, 'fresh_majority'),
    'differences': (_differences, 'least_error'),
    'chains': (_chains, 'zeros'),
    'memories': (_memories, '4.5'),
  }
  chosen = {name: records.dropna(subset=field) for name, (_, field) in makers.items() if field in records}
  return {name: makers[name][0](found) for name, found in chosen.items() if len(found)}


def _theorems(records: pd.DataFrame) -> Table:
  """A row for each theorem: what was checked, and what was found wrong."""
  rows = []
  for theorem, found in records.groupby('theorem', sort=False):
    violated, percent = found['violates'][found['violates'] != ''], 100 * found['majority']
    total = found[['sequences', 'no_mass', 'decided_exactly', 'exact_ties', 'wrong']].sum().map('{:,.0f}'.format)
    rows.append(
      {
        'theorem': theorem,
        'assumed': found['assumptions'].iloc[0],
        'violated besides': f'{violated.iloc[0]} in {len(violated)}' if len(violated) else '',
        'HMMs': str(len(found)),
        '|H*| > 1': str((found['num_essential'] > 1).sum()),
        'C = 3': str((found['num_classes'] > 2).sum()),
        'sequences': total['sequences'],
        'commonest label': f'{percent.min():.0f} to {percent.max():.1f}%',
        'no mass': total['no_mass'],
        'decided exactly': total['decided_exactly'],
        'exact ties': total['exact_ties'],
        'wrong': total['wrong'],
        'cosine error': f'{found["largest_cosine_error"].max():.0e}',
        'vector error': f'{found["largest_vector_error"].max():.0e}',
      }
    )
  return table('What the constructions recover beside the exact posterior', rows, 3)


def _wrong_constructions(records: pd.DataFrame) -> Table:
  """A row for each wrong construction of a theorem: how many sequences see it."""
  columns = {'sequences': 'sequences', 'by_label': 'by label', 'by_direction': 'by direction', 'by_factor': 'by any'}
  rows = []
  for (theorem, mutant), found in records.groupby(['theorem', 'mutant'], sort=False):
    counts = {name: f'{found[field].sum():,.0f}' for field, name in columns.items()}
    seen = found[['by_label', 'by_direction', 'by_factor']].any(axis=1).sum()
    named = {'theorem': theorem, 'what is wrong': mutant, 'HMMs': str(len(found))}
    rows.append({**named, **counts, 'HMMs that see it': str(seen)})
  return table('Wrong constructions, and the sequences that see them', rows, 2)


def _temperatures(records: pd.DataFrame) -> Table:
  """A row for each theorem with attention and temperature of the softmax: accuracy over HMMs."""
  rows = []
  for theorem, of_theorem in records.groupby('theorem', sort=False):
    for temperature, found in of_theorem.groupby('temperature'):
      accuracies = {name: _mean_percent(found[name]) for name in ('majority', 'accuracy')}
      named = {'theorem': theorem, 'temperature': f'{temperature:g}', 'HMMs': str(len(found))}
      rows.append({**named, **accuracies, 'least of any HMM': f'{100 * found["accuracy"].min():.1f}'})
  title = 'Constructions with a softmax in place of argmax: accuracy in percent, mean and 95% interval over HMMs'
  return table(title, rows, 1)


def _claims(records: pd.DataFrame) -> Table:
  """A row for each claim of the appendices, with the largest violation found."""
  rows = [
    {
      'claim': row.claim,
      'says': row.says,
      'assumed': row.assumed,
      'random': f'{row.largest_random:.1e}',
      'searched': f'{row.largest_adversarial:.1e}',
      'exactly': f'{row.exact:.2g}',
      'verdict': 'violated' if row.violated else 'not violated',
      'violated at': row.fails_at,
    }
    for row in records.itertuples()
  ]
  first = records.iloc[0]
  title = (
    f'Largest violation found of each claim: {first["num_random"]:.0f} random cases, {first["num_steps"]:.0f} steps '
    f'of a search from the worst, {first["num_edge"]:.0f} cases at each edge'
  )
  return table(title, rows, 3)


def _gaps(records: pd.DataFrame) -> Table:
  """The smallest gaps that an argmax tells apart, by the denominator of the probabilities."""
  named = {'gap_random': 'random', 'gap_adversarial': 'searched'}
  gaps = records[list(named)].map('{:.1e}'.format).rename(columns=named)
  gaps.insert(0, 'denominator', records['gap_denominator'].map('{:.0f}'.format))
  return Table('Smallest 1 - q^T K(G_i) beside an attended position', gaps)


def _linear_heads(records: pd.DataFrame) -> Table:
  """Linear heads that exist, by kind of draw."""
  rows = []
  for kind, found in records.groupby('kind', sort=False):
    certified = statistics.select(found, outcome='certified')
    rows.append(
      {
        'draws': _KINDS[kind],
        **{name: share(found['outcome'] == outcome) for outcome, name in _OUTCOMES.items()},
        'texts of a proof': f'{certified["proof_texts"].max():.0f}' if len(certified) else '',
        'error of any head, at least': median_range(certified['least_error']),
        'near ties': f'{found["near_ties"].max():.1g}',
      }
    )
  title = (
    'Is any linear head on G right on all texts? HMMs with more states than tokens [95% interval of the share, percent]'
  )
  return table(title, rows, 1)


def _accuracies(records: pd.DataFrame) -> Table:
  """The accuracy of each method, by kind of draw, what is known of linear heads, and the text."""
  rows = []
  for kind, of_kind in records.groupby('kind', sort=False):
    for outcome, found in of_kind.groupby('outcome'):
      for scored_on, text in _SCORED_ON.items():
        named = {'draws': _KINDS[kind], 'linear head': _OUTCOMES[outcome], 'scored on': text, 'HMMs': str(len(found))}
        accuracies = {name: _mean_percent(found[f'{scored_on}_{field}']) for field, name in _ACCURACIES.items()}
        rows.append({**named, **accuracies, 'HMMs of 3.6': str(found[f'{scored_on}_construction'].count())})
  return table('The probability of a right label, in percent: means over HMMs and their 95% intervals', rows, 3)


def _differences(records: pd.DataFrame) -> Table:
  """Differences between methods where no linear head is right on all texts, paired over HMMs."""
  rows = []
  for kind, found in records.groupby('kind', sort=False):
    for scored_on, text in _SCORED_ON.items():
      differences = {
        f'{_ACCURACIES[first]} - {_ACCURACIES[second]}': _mean_percent(
          found[f'{scored_on}_{first}'] - found[f'{scored_on}_{second}']
        )
        for first, second in _CONTRASTS
      }
      rows.append({'draws': _KINDS[kind], 'scored on': text, 'HMMs': str(len(found)), **differences})
  title = 'Certified HMMs: differences of these accuracies in points, paired over HMMs, with 95% intervals'
  return table(title, rows, 2)


def _chains(records: pd.DataFrame) -> Table:
  """Shares of chains on which each assumption holds, a column for each |H|."""
  exhaustive = records['exhaustive'].map(lambda by_support: all(by_support.values()))
  cells = {
    'zeros in A': _by_size(records, records['zeros'], lambda zeros: f'{100 * zeros.mean():.0f}%'),
    'least singular value of W, median': _by_size(records, records['smallest_singular_value'], _median),
    **_by_rank(records, '3.1', records['3.1']),
    '3.2': _by_size(records, records['3.2'], share),
  }
  for support in records['3.5'].iloc[0]:
    cells |= _by_rank(records, f'3.5, epsilon {float(support):g}', records['3.5'].str[support])
  cells['searches for H* cut off'] = _by_size(records, ~exhaustive, lambda cut_off: str(cut_off.sum()))
  frame = pd.DataFrame(cells).T.rename(columns='H = {:.0f}'.format).reset_index(names='assumption')
  title = "Assumptions in the paper's draws of an HMM and of mu: how many satisfy each [95% interval, percent]"
  return Table(title, frame, 1)


def _memories(records: pd.DataFrame) -> Table:
  """Shares of memories on which each assumption holds, a row for each |M|."""
  cells = {
    **_by_rank(records, '4.2', records['4.2']),
    **_by_rank(records, '4.5', records['4.5']),
    '4.4': _by_size(records, records['4.4'], share),
    'off the stationary law, median': _by_size(records, records['stationarity_error'], _median),
  }
  frame = pd.DataFrame(cells).rename('{:.0f}'.format).reset_index(names='M')
  title = "Assumptions in the paper's draws with a memory of one cell: how many satisfy each [95% interval, percent]"
  return Table(title, frame)


def _by_size(records: pd.DataFrame, values: pd.Series, cell: Any) -> pd.Series:
  return values.groupby(records['size']).agg(cell)


def _by_rank(records: pd.DataFrame, name: str, held: pd.Series) -> dict[str, pd.Series]:
  """Shares in which an assumption holds, by the largest ratio of singular values that counts as 0."""
  return {f'{name}, rank {rank}': _by_size(records, held.str[rank], share) for rank in held.iloc[0]}


def _median(values: pd.Series) -> str:
  return f'{values.median():.1g}'


def _mean_percent(values: pd.Series) -> str:
  """The mean in percent with its 95% interval, of what is known; '' of nothing."""
  known = values.dropna().astype(float)
  return str(statistics.mean_interval(100 * known)) if len(known) else ''
