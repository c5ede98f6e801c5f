"""Recipes of pretraining beside each other, on the same distributions and text, with the same operations.

A recipe is the config's own with a few fields changed. Which steps it may take follows from what a step costs.
"""

from collections.abc import Sequence
import itertools
import pathlib
from typing import Any

import matplotlib
import matplotlib.figure
import numpy as np

from experiments.analysis import figures, report, statistics
from experiments.pipeline import cost, needs, sweep, trial as trial_lib
from experiments.records import checkpoints, results
from experiments.records.results import Record
from experiments.runtime import distributed
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.settings.groups import FigureSettings
from experiments.studies.settings import BASE, RecipeSettings

_TITLE = 'Against the base, on the same HMMs: KL as geometric means, ratios with 95% t intervals of the logarithm'


def check(settings: RecipeSettings) -> None:
  """Raises SettingsError where this machine lacks what a recipe asks for."""
  for recipe in settings.recipes().values():
    sweep.check(recipe)


chosen = sweep.chosen


def trials(settings: RecipeSettings, workdir: pathlib.Path) -> sweep.Grid:
  """Every trial of every recipe by its name, distribution by distribution; its place is its number."""
  return {f'{trial} {_label(name)}': trial for name, trial in _grid(settings, workdir)}


def _grid(settings: RecipeSettings, workdir: pathlib.Path) -> list[tuple[str, trial_lib.Trial]]:
  """Each trial with the name of its recipe."""
  recipes = settings.recipes()
  drawn = itertools.product(settings.draws(), recipes)
  return [(name, trial_lib.Trial(recipes[name], *draw, workdir)) for draw, name in drawn]


def run(
  settings: RecipeSettings, workdir: pathlib.Path, reporter: Reporter, numbers: Sequence[int] | None = None
) -> str | None:
  """Runs what is missing of the trials of these numbers, as `sweep.run` does."""
  reporter.say(needs.memory_line(settings))
  grid = trials(settings, workdir)
  distributed.broadcast_from_process_0(lambda: _check_models(grid))
  return sweep.complete(settings, grid, numbers, lambda: merge(settings, workdir, reporter), reporter)


def _check_models(grid: sweep.Grid) -> None:
  """Raises SettingsError where the pretrained model of a finished trial is gone."""
  for trial in grid.values():
    if not trial.absent():
      _metrics(trial)


def merge(settings: RecipeSettings, workdir: pathlib.Path, reporter: Reporter) -> str | None:
  """Writes the records of all trials that are finished, a record for each; says what is left."""
  grid = _grid(settings, workdir)
  names = {trial.id: name for name, trial in grid}
  record = lambda trial, rows: [_record(settings, names[trial.id], trial, rows)]
  left = len(grid) - len(sweep.write(workdir, settings, [trial for _, trial in grid], record, reporter))
  return f'{left} of {len(grid)} pretrainings are left' if left else None


def _metrics(trial: trial_lib.Trial) -> list[Record]:
  """What was measured along a pretraining that is finished; raises SettingsError where it is no more."""
  directory = trial.pretrained_directory
  metrics = checkpoints.newest_metrics(directory / checkpoints.NAME)
  if not metrics or metrics[-1]['step'] != trial.settings.pretrain.num_steps:
    tuned = str(trial.directory)
    what = f'{str(directory)!r}, the pretrained model of {tuned!r}, has no good checkpoint of its last step'
    raise SettingsError(f'{what}; valid is to delete both')
  return metrics


def _record(settings: RecipeSettings, name: str, trial: trial_lib.Trial, rows: list[Record]) -> Record:
  """What a recipe made of a distribution: how far from ideal, along which way, and the mean accuracy of each method."""
  recipe = trial.settings
  metrics = _metrics(trial)
  whole = settings.pretrain.num_steps * cost.pretraining_step(settings)
  accuracy = {
    method: np.mean([r['accuracy'] for r in statistics.select(rows, method=method)]) for method in trial.methods
  }
  return {
    'recipe': name,
    **trial.point._asdict(),
    'trial': trial.trial,
    'num_steps': recipe.pretrain.num_steps,
    'operations': recipe.pretrain.num_steps * cost.pretraining_step(recipe) / whole,
    **{field: value for field, value in metrics[-1].items() if field not in ('step', 'train_loss')},
    'accuracy': {method: float(mean) for method, mean in accuracy.items()},
    'curve': [[row['step'], row['kl_at_mask']] for row in metrics],
    'trial_id': trial.id,
    'pretraining_id': trial.pretraining_id,
    'environment': rows[0]['environment'],
  }


def show(settings: RecipeSettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the table of the recipes on record, and draws their way to the ideal model."""
  records = results.load(workdir)
  if not records:
    return
  report.show(render(records), workdir, reporter)
  reporter.say(figures.saved(draw(records, settings.figure), workdir / 'recipes'))


def render(records: list[Record]) -> str:
  """A row for each size and recipe, as plain text."""
  rows = []
  for point, of_point in statistics.by_point(records).items():
    base = {record['trial']: record for record in statistics.select(of_point, recipe=BASE)}
    for name in _names(of_point):
      of_recipe = statistics.select(of_point, recipe=name)
      row = [('|H|', str(point.num_states)), ('recipe', _label(name)), ('n', str(len(of_recipe)))]
      rows.append(row + _cells(of_recipe, base, name == BASE))
  return report.as_text(report.from_rows(_TITLE, rows))


def _cells(records: list[Record], bases: dict[int, Record], is_base: bool) -> report.Row:
  """Of one recipe on one size, each record beside that of the base on the same distribution, where there is one."""
  pairs = [(record, bases[record['trial']]) for record in records if record['trial'] in bases]
  compared = bool(pairs) and not is_base
  cells = [
    ('steps', str(records[0]['num_steps'])),
    ('operations', f'{records[0]["operations"]:.2f}'),
    ('KL at\n[MASK]', f'{_geometric_mean([r["kl_at_mask"] for r in records]):.4f}'),
  ]
  for title, field in (('KL at [MASK]\n/ base', 'kl_at_mask'), ('KL over positions\n/ base', 'kl_over_positions')):
    ratios = [one[field] / base[field] for one, base in pairs]
    cells.append((title, ratio(ratios) if compared else ''))
  cells.append(('excess\nMLM loss', f'{np.mean([r["excess_mlm_loss"] for r in records]):.4f}'))
  shares = [share_to_reach(one, base) for one, base in pairs]
  found = [share for share in shares if share is not None]
  all_do = compared and len(found) == len(shares)
  reached = f'{np.mean(found):.2f}' if all_do else f'{len(found)} of {len(shares)} do'
  cells.append(("share that reaches\nthe base's KL", reached if compared else ''))
  for method in records[0]['accuracy']:
    cells.append((f'{method}\naccuracy', f'{np.mean([100 * record["accuracy"][method] for record in records]):.1f}'))
    accuracies = [100 * np.array([one['accuracy'][method], base['accuracy'][method]]) for one, base in pairs]
    difference = statistics.mean_interval([one - base for one, base in accuracies])
    cells.append((f'{method}\n- base', str(difference) if compared else ''))
  return cells


def share_to_reach(record: Record, base: Record) -> float | None:
  """The share of the base's operations after which KL at the [MASK] first falls to the base's last; None: never.

  Between measurements the logarithm of KL is taken to be linear in the steps.
  """
  target = base['curve'][-1][1]
  for (step, before), (next_step, after) in itertools.pairwise(record['curve']):
    if after <= target:
      part = np.log(before / target) / np.log(before / after)
      return float((step + part * (next_step - step)) / record['num_steps'] * record['operations'])
  return None


def ratio(ratios: list[float]) -> str:
  """The geometric mean of ratios, and the ends of the 95% t interval of their logarithm where there are three."""
  mean, half_width, _ = statistics.mean_interval(np.log(ratios))
  ends = '' if np.isnan(half_width) else f' [{np.exp(mean - half_width):.2f}, {np.exp(mean + half_width):.2f}]'
  return f'{np.exp(mean):.2f}{ends}'


def _geometric_mean(values: list[float]) -> float:
  return float(np.exp(np.mean(np.log(values))))


def _names(records: list[Record]) -> list[str]:
  return list(dict.fromkeys(record['recipe'] for record in records))


def _label(name: str) -> str:
  """The recipe without the names of the groups."""
  return ' '.join(word.partition('.')[2] or word for word in name.split())


@figures.styled
def draw(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """KL at the [MASK] against the share of the base's operations, a panel for each size and a line for each recipe."""
  of_points, styles = statistics.by_point(records), list(dict.fromkeys([BASE, *_names(records)]))
  figure, panels = figures.panels(settings, len(of_points))
  for axes, (point, of_point) in zip(panels, of_points.items()):
    for name in _names(of_point):
      chosen = statistics.select(of_point, recipe=name)
      curves = [np.array(record['curve']).T for record in chosen]
      # Measured at the same steps, unless `num_measurements` was another then.
      steps = np.unique(np.concatenate([measured for measured, _ in curves]))
      kl = np.exp(np.mean([np.interp(steps, measured, np.log(kl)) for measured, kl in curves], axis=0))
      axes.plot(steps / steps[-1] * chosen[0]['operations'], kl, label=_label(name), **_style(styles.index(name)))
    axes.set_yscale('log')
    axes.set_title(str(point))
    axes.set_xlabel("share of the base's operations")
  panels[0].set_ylabel('KL at the [MASK] (nats)')
  counts = [len(statistics.select(rows, recipe=name)) for rows in of_points.values() for name in _names(rows)]
  figures.finish(figure, figures.caption(records, figures.counted(counts, 'geometric mean over HMMs', spread=False)))
  return figure


def _style(index: int) -> dict[str, Any]:
  """The base thick and black; then the cycle of the style, and where it comes round hollow and thin."""
  if not index:
    return dict(color='black', marker='', linestyle='-', linewidth=2.6)
  cycle = list(matplotlib.rcParams['axes.prop_cycle'])
  style = dict(cycle[(index - 1) % len(cycle)])
  hollow = index > len(cycle)
  return style | dict(markerfacecolor='white' if hollow else style['color'], linewidth=0.9 if hollow else 1.5)
