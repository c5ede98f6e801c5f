"""A mixture that might explain the paper's Figure 3 (left): some of its BERTs predict only token frequencies.

With probability f a task is read from a BERT like ours, otherwise from one on which every reader answers the commonest
class. f is fitted to the paper's mean of the prompt; its head and its spread are then predicted.
"""

from collections.abc import Iterator
import math

import numpy as np
import pandas as pd
import scipy.stats

from experiments.analysis import report
from experiments.analysis.statistics import select
from experiments.analysis.table import format_number, Table, table

# The texts of the paper: a scale of ours that is compared with each, and its tasks of a size.
_TEXTS = {'later text': ('paper', 20), 'first text': ('paper_v1', 5)}


def tables(records: pd.DataFrame) -> dict[str, Table]:
  """The table `mixture` of records of head and prompt on vanilla text; none without these, or with one HMM a size."""
  on_bert = select(records, model='bert', memory_size=0)
  if on_bert['trial'].nunique() < 2 or not {'head', 'prompt'} <= set(on_bert['method']):
    return {}
  title = (
    'The paper as a mixture: a share f of BERTs like ours, fitted to its prompt, and BERTs on which every reader gives '
    'the commonest class. Mean and SD over tasks, in percent; SE: of the mean of the paper, by its interval, or for '
    'the first text by the predicted SD'
  )
  return {'mixture': table(title, [*_rows(on_bert)], 1)}


def _rows(records: pd.DataFrame) -> Iterator[report.Row]:
  """A row for each text of the paper and |H|: the share fitted to its prompt, its head and spread, and predictions."""
  # Pairs of mean and SD, here and below.
  plateau = _moments(select(records, method='prompt'), 'majority_accuracy')
  for text, (scale, num_tasks) in _TEXTS.items():
    head, prompt, *half_widths = (
      report.paper('left', name, scale, statistic) for statistic in ('mean', 'ci95') for name in ('head', 'prompt')
    )
    # Half-widths of the 95% intervals over standard errors.
    critical = scipy.stats.t.isf(0.025, num_tasks - 1)
    for size, of_size in records.groupby('num_states'):
      if size not in prompt:
        continue
      our_head, our_prompt = (_moments(select(of_size, method=name), 'accuracy') for name in ('head', 'prompt'))
      share = float(np.clip((prompt[size] - plateau[0]) / (our_prompt[0] - plateau[0]), 0, 1))
      mean, spread = mixed(share, our_head, plateau)
      of_head, of_prompt = (of_size.get(size, np.nan) / critical for of_size in half_widths)
      yield {
        'text': text,
        '|H|': str(size),
        'f': f'{share:.2f}',
        'head\npredicted': f'{mean:.1f}',
        'head\npaper': f'{head[size]:.1f}',
        'SE': format_number(spread / math.sqrt(num_tasks) if np.isnan(of_head) else of_head, '.1f'),
        'SD of prompt\npredicted': f'{mixed(share, our_prompt, plateau)[1]:.1f}',
        'SD of prompt\npaper': format_number(of_prompt * math.sqrt(num_tasks), '.1f'),
        'SD of prompt\nours': f'{our_prompt[1]:.1f}',
      }


def _moments(tasks: pd.DataFrame, field: str) -> tuple[float, float]:
  """Mean and SD over tasks, in percent."""
  return 100 * tasks[field].mean(), 100 * tasks[field].std()


def mixed(share: float, first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
  """Mean and SD of a mixture of two distributions, given those of both and the share of the first.

  The variance is the mean of SD_i^2 + (mean_i - mean)^2, weighted by the shares.

  >>> mixed(0.5, (100.0, 0.0), (60.0, 0.0))
  (80.0, 20.0)
  """
  mean = share * first[0] + (1 - share) * second[0]
  parts = (share, *first), (1 - share, *second)
  variance = sum(weight * (sd**2 + (center - mean) ** 2) for weight, center, sd in parts)
  return mean, math.sqrt(variance)
