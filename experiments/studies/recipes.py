"""Recipes of pretraining compared on the same distributions and text, at equal operations.

A recipe changes a few fields of the config's own. The cost of its step decides its number of steps.
"""

from collections.abc import Sequence
import itertools
import pathlib
import re
from typing import Any

from cycler import cycler
import matplotlib
import matplotlib.figure
import numpy as np
import pandas as pd
import scipy.stats

from experiments.analysis import figures as figures_lib, statistics
from experiments.analysis.tables import number, Table, table
from experiments.pipeline import cost, sweep, trial as trial_lib
from experiments.records import checkpoints
from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.settings.grid import Point
from experiments.studies.settings import BASE, RecipeSettings
from experiments.studies.study import Study

_TITLE = 'Recipes and the base on the same {}s: geometric mean KL; ratios with 95% t intervals on the log scale'


def _check(settings: RecipeSettings) -> None:
  for recipe in settings.recipes().values():
    sweep.check(recipe)


def _trials(settings: RecipeSettings, workdir: pathlib.Path) -> sweep.Grid:
  """Every trial of every recipe by its name, distribution by distribution; its place is its number."""
  grid = {}
  for draw, (name, recipe) in itertools.product(settings.draws(), settings.recipes().items()):
    trial = trial_lib.Trial(recipe, *draw, workdir)
    grid[f'{trial} {_label(name)}'] = trial
  return grid


def _merge(settings: RecipeSettings, workdir: pathlib.Path, reporter: Reporter) -> str | None:
  """Write a record for each finished trial; return what is left, as a sentence."""
  grid = list(_trials(settings, workdir).values())
  # The settings of a trial are its recipe.
  names = {recipe: name for name, recipe in settings.recipes().items()}
  record = lambda trial, rows: [{'recipe': names[trial.settings], **_record(settings, trial, rows)}]
  left = len(grid) - len(sweep.write(workdir, settings, grid, record, reporter))
  return f'{left} of {len(grid)} pretrainings are unfinished' if left else None


def metrics_of(trial: trial_lib.Trial) -> list[Record]:
  """The measurements along a finished pretraining; raises SettingsError where it is no longer there."""
  directory = trial.pretrained_directory
  metrics = checkpoints.newest_metrics(directory / checkpoints.NAME)
  if not metrics or metrics[-1]['step'] != trial.settings.pretrain.num_steps:
    raise SettingsError(
      f'{str(directory)!r} has no intact last checkpoint; delete it and {str(trial.directory)!r}, then rerun'
    )
  return metrics


def _record(settings: RecipeSettings, trial: trial_lib.Trial, rows: list[Record]) -> Record:
  """The record of a recipe on a distribution: distance from ideal, its curve, and the mean accuracy by method."""
  metrics = metrics_of(trial)
  base, recipe = (s.pretrain.num_steps * cost.pretraining_step(s) for s in (settings, trial.settings))
  mean = lambda method: float(np.mean([row['accuracy'] for row in rows if row['method'] == method]))
  return {
    **trial.point._asdict(),
    **settings.given,
    'trial': trial.trial,
    'num_steps': trial.settings.pretrain.num_steps,
    'operations': recipe / base,
    # The last measurement, without the training loss, which is of noisy batches.
    **{field: value for field, value in metrics[-1].items() if field not in ('step', 'train_loss')},
    'accuracy': {method: mean(method) for method in trial.methods},
    'curve': [[row['step'], row['kl_at_mask']] for row in metrics],
    'trial_id': trial.id,
    'pretraining_id': trial.pretraining_id,
    'environment': rows[0]['environment'],
  }


def tables(records: pd.DataFrame, _: Any) -> dict[str, Table]:
  """A row for each size and recipe."""
  rows, percent = [], 100 * pd.DataFrame(list(records['accuracy']))
  records = records.join(percent)
  base = statistics.select(records, recipe=BASE)
  for (num_states, *_, name), of_recipe in records.groupby([*Point._fields, 'recipe'], sort=False):
    # Pairs with the base on the same distribution, if there is one; the base itself has none.
    compared = of_recipe[of_recipe['recipe'] != BASE]
    pairs = compared.merge(base, on=[*Point._fields, 'trial'], suffixes=('', '_of_base'))
    row = {
      'process': statistics.process(of_recipe),
      '|H|': str(num_states),
      'recipe': _label(name),
      'n': str(len(of_recipe)),
      'steps': str(of_recipe['num_steps'].iloc[0]),
      'operations': f'{of_recipe["operations"].iloc[0]:.2f}',
      'KL at\n[MASK]': f'{scipy.stats.gmean(of_recipe["kl_at_mask"]):.4f}',
      'KL at [MASK]\n/ base': ratio(pairs['kl_at_mask'] / pairs['kl_at_mask_of_base']),
      'KL over positions\n/ base': ratio(pairs['kl_over_positions'] / pairs['kl_over_positions_of_base']),
      'excess\nMLM loss': f'{of_recipe["excess_mlm_loss"].mean():.4f}',
      "share to reach\nthe base's KL": _reached(pairs),
    }
    for method in percent:
      row[f'{method}\naccuracy'] = f'{of_recipe[method].mean():.1f}'
      row[f'{method}\n- base'] = str(statistics.mean_interval(pairs[method] - pairs[f'{method}_of_base']))
    rows.append(row)
  # Drawn HMMs have no column `process`.
  num_texts = 2 + bool(statistics.process(records))
  return {'recipes': table(_TITLE.format(statistics.trial_name(records)), rows, num_texts)}


def ratio(ratios: Sequence[float] | pd.Series) -> str:
  """The geometric mean of ratios, and the ends of the 95% t interval of their logarithm where there are three."""
  log = statistics.mean_interval(np.log(ratios))
  # The half-width of fewer than three is NaN, which `number` leaves blank.
  ends = log.mean - log.half_width, log.mean, log.mean + log.half_width
  low, middle, high = (number(np.exp(x), '.2f') for x in ends)
  return f'{middle} [{low}, {high}]' if low else middle


def _reached(pairs: pd.DataFrame) -> str:
  """The mean share of the base's operations that reaches its last KL, or how many reach it; '' without pairs."""
  curves = zip(pairs['curve'], pairs['curve_of_base'])
  shares = pairs['operations'] * [share_to_reach(curve, base[-1][1]) for curve, base in curves]
  return f'{shares.count()} of {len(shares)} reach' if shares.isna().any() else number(shares.mean(), '.2f')


def share_to_reach(curve: Sequence[tuple[int, float]], target: float) -> float:
  """The share of its steps after which a curve of (step, KL) first falls to `target`; NaN: never.

  Between measurements the logarithm of KL is taken to be linear in the steps.
  """
  steps, kl = np.array(curve).T
  reached = np.flatnonzero(kl[1:] <= target)
  if not reached.size:
    return np.nan
  # The measurement that has reached it, and the one before.
  ends = [reached[0] + 1, reached[0]]
  return float(np.interp(np.log(target), np.log(kl[ends]), steps[ends]) / steps[-1])


def _label(name: str) -> str:
  """The recipe without the names of the groups."""
  return re.sub(r'\b[a-z]+\.', '', name)


@figures_lib.styled
def figures(records: pd.DataFrame, settings: Any) -> dict[str, matplotlib.figure.Figure]:
  """KL at the [MASK] against the share of the base's operations, a panel for each size and a line for each recipe."""
  of_points = statistics.by_point(records)
  figure, panels = figures_lib.panels(settings.figure, len(of_points))
  # The base thick and black; then the cycle of the style, and where it comes round hollow and thin.
  cycle = cycler(markerfacecolor=['auto', 'white'], linewidth=[1.5, 0.9]) * matplotlib.rcParams['axes.prop_cycle']
  styles: dict[str, Any] = {BASE: dict(color='black', marker='', linestyle='-', linewidth=2.6)}
  styles |= zip(dict.fromkeys(records['recipe'][records['recipe'] != BASE]), itertools.cycle(cycle))
  for axes, (point, of_point) in zip(panels, of_points.items()):
    for name, of_recipe in of_point.groupby('recipe', sort=False):
      # Measured at the same steps, unless `num_measurements` has changed.
      curves = pd.DataFrame([dict(curve) for curve in of_recipe['curve']]).T.sort_index()
      kl = np.exp(np.log(curves).interpolate('index').mean(axis=1))
      shares = kl.index / kl.index[-1] * of_recipe['operations'].iloc[0]
      axes.plot(shares, kl, label=_label(name), **styles[name])
    axes.set_yscale('log')
    axes.set_title(str(point))
    axes.set_xlabel("share of the base's operations")
  panels[0].set_ylabel('KL at the [MASK] (nats)')
  counts = records.groupby([*Point._fields, 'recipe']).size()
  over = f'geometric mean over {statistics.trial_name(records)}s'
  counted = figures_lib.counted(list(counts), over, spread=False)
  figures_lib.finish(figure, records, counted)
  return {'recipes': figure}


STUDY = Study(sweep.runs(_trials, _merge), tables, figures, _check, _trials, _merge)
