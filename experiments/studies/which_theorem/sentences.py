"""The sentences of docs/which_theorem.md that have numbers in them, from records alone."""

from collections.abc import Callable
import operator

import numpy as np

from experiments.analysis import statistics
from experiments.records.results import Record
from experiments.studies.which_theorem.report import (
  by_size,
  hmms,
  is_moderate,
  MODERATE,
  over_hmms,
  part_records,
  percent,
)


def linearity(records: list[Record]) -> str:
  """Of which tasks the score is linear in G, and by what heads."""
  chosen = part_records(records, 'linearity')
  firsts = [of_hmm[0] for of_hmm in hmms(chosen).values()]
  whole = sum(record['reached_dimension'] == record['num_states'] for record in firsts)
  linear = [record for record in chosen if record['linear']]
  lines = [
    f'- {len(chosen)} tasks of {len(firsts)} HMMs. S has all H dimensions in {whole} of them; there the score is '
    f'linear in G exactly where mu is in row(W).',
    f'- The score is exactly linear in {_by_size(chosen, lambda record: record["linear"])}.',
    f'- A head of osc(b) at most {MODERATE:g} osc(mu) makes it so in {_by_size(chosen, is_moderate)}.',
  ]
  if linear:
    medians = ', '.join(
      f'{np.median([record["head_size"] for record in rows]):.1g} at H = {size}'
      for size, rows in by_size(linear).items()
    )
    lines.append(
      f'- The median osc(b) / osc(mu) of the least exact heads is {medians}: so many times its total variation can an '
      f'error of G move the score.'
    )
  return '\n'.join(lines)


def separability(records: list[Record]) -> str:
  """Of which tasks labels are separable, among those whose score is linear and not, with near ties and without."""
  chosen = part_records(records, 'linearity')
  lines = []
  for field, words in (('separable', 'All test inputs'), ('clear_separable', 'Without near ties')):
    lines.append(f'- {words}: labels are separable in {_by_size(chosen, operator.itemgetter(field))}.')
    for linear, condition in ((True, 'is exactly linear'), (False, 'is not linear')):
      rows = statistics.select(chosen, linear=linear)
      if rows:
        count, undecided = (sum(record[field] is answer for record in rows) for answer in (True, None))
        share = percent(rows, operator.itemgetter(field))
        open_ = f', and {undecided} open' if undecided else ''
        lines.append(
          f'- {words}, where the score {condition}: {count} of {len(rows)} tasks{open_}; {share}% by HMM, over '
          f'{len(share.values)} HMMs.'
        )
  ties, majority = (percent(chosen, operator.itemgetter(name)) for name in ('near_tie_share', 'majority_accuracy'))
  lines.append(f'- {ties}% of the test inputs of a task are near ties, and {majority}% have the majority class.')
  return '\n'.join(lines)


def prompting(records: list[Record]) -> str:
  """Where Assumption 3.5 holds while the score is not linear, so that the theorem of prompts alone speaks."""
  chosen = part_records(records, 'linearity')
  if not chosen:
    return ''
  supports, rank = sorted(chosen[0]['3.5'], key=float), min(chosen[0]['3.1'], key=float)
  rows = statistics.select(chosen, linear=False)
  counts = ', '.join(
    f'{sum(record["3.5"][level][rank] for record in rows)} with probabilities up to {float(level):g} taken for 0'
    if float(level)
    else f'{sum(record["3.5"][level][rank] for record in rows)} exactly'
    for level in supports
  )
  return (
    f'- Of the {len(rows)} tasks whose score is not linear Assumption 3.5 holds in {counts} (singular values up to '
    f'{rank} of the largest count as 0).'
  )


def certificate(records: list[Record]) -> str:
  """What is certified of the fixed heads, and by which step it is lost."""
  chosen = part_records(records, 'kl')
  majorities = {_task(record): record['majority_accuracy'] for record in part_records(records, 'linearity')}
  above = [record for record in chosen if record['from_kl'] > majorities[_task(record)]]
  wrong = sum(record['certified'] > record['accuracy'] for record in chosen)
  lines = [f'- More is certified than is right in {wrong} of {len(chosen)} cases, each a task at a step.']
  for size, rows in by_size(chosen).items():
    last = statistics.select(rows, step=max(record['step'] for record in rows))
    names = ('exact_accuracy', 'accuracy', 'certified', 'from_total_variation', 'from_kl')
    exact, right, certified, by_tv, by_kl = (percent(last, operator.itemgetter(name)) for name in names)
    lines.append(
      f'- |H| = {size}, {len(hmms(last))} HMMs, after {last[0]["step"]} steps, with a mean KL of '
      f'{over_hmms(last, lambda r: r["kl"]).mean:.2g} nats: heads that are right on {exact}% on the exact G are right '
      f'on {right}% on BERT. Of all inputs {certified}% are certified by the total variation of each, {by_tv}% by its '
      f'mean and {by_kl}% by mean KL.'
    )
  lines.append(
    f'- What mean KL alone certifies is above the majority class in {len(above)} of the {len(chosen)} cases.'
  )
  return '\n'.join(lines)


SENTENCES: dict[str, Callable[[list[Record]], str]] = {
  'linearity': linearity,
  'separability': separability,
  'prompting': prompting,
  'certified': certificate,
}


def _task(record: Record) -> tuple[int, int, int]:
  return record['num_states'], record['trial'], record['task']


def _by_size(records: list[Record], holds: Callable[[Record], bool | None]) -> str:
  """'all 20 tasks at H = 4 and 8, 3 of 12 at H = 10, none of the 12 at H = 15'."""
  counts = {size: (sum(bool(holds(record)) for record in rows), len(rows)) for size, rows in by_size(records).items()}
  words = lambda sizes: 'H = ' + ' and '.join(filter(None, [', '.join(map(str, sizes[:-1])), str(sizes[-1])]))
  whole = [size for size, (count, total) in counts.items() if count == total]
  none = [size for size, (count, _) in counts.items() if not count]
  total = lambda sizes: sum(counts[size][1] for size in sizes)
  parts = [f'all {total(whole)} tasks at {words(whole)}'] if whole else []
  parts += [f'{count} of {of} at H = {size}' for size, (count, of) in counts.items() if 0 < count < of]
  parts += [f'none of {total(none)} at {words(none)}'] if none else []
  return ', '.join(parts)
