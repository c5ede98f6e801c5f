"""Head, prompt and probe along the pretraining of BERTs, which begins on a plateau: BERT predicts token frequencies."""

from collections.abc import Callable
import functools

import jax
from jax import Array
import matplotlib.figure
import numpy as np
import pandas as pd
import scipy.special

from experiments.analysis import figures as figures_lib
from experiments.analysis.statistics import percent
from experiments.analysis.tables import by_unit, proportion, select, Table, table
from experiments.pipeline import checks, pretraining, trial as trial_lib, tuning
from experiments.runtime.progress import Reporter
from experiments.settings.methods import METHODS, NONE
from experiments.settings.trial import Trial, trials
from experiments.studies.settings import PlateauSettings
from experiments.studies.study import in_parts, Part, Row, Study
from hmm_jax.models import bayes_gap

# A BERT has left the plateau if its KL at the [MASK] is below this share of the unigram gap.
LEFT = 0.5
# The fields recorded for a tuned method.
_MEASURED = ('accuracy', 'clear_accuracy', 'majority_accuracy')
# Of the fields that figures show.
_LABELS = {
  'accuracy': 'test accuracy (%)',
  'majority_accuracy': 'majority class',
  'lead': 'lead (points)',
  'no_lead': 'best reader without a model',
}
# The unit of every interval.
HMM = ['num_states', 'trial']


def _parts(settings: PlateauSettings) -> dict[str, Part]:
  """A part for each pretraining, the first of every size before the second of any."""
  return {f'H{trial.point.num_states}_{trial.number}': functools.partial(_along, trial) for trial in trials(settings)}


def _along(trial: Trial, settings: PlateauSettings, key: Array, reporter: Reporter) -> list[Row]:
  """The records of one pretraining; `key` is unused, since a trial has its own."""
  tasks, rows = [*range(settings.tasks_per_trial)], list[Row]()
  with trial_lib.precisely():
    hmm, downstream = trial_lib.draw(trial)
    size, inputs = settings.measure.batch_size, downstream.inputs[downstream.splits['test']]
    ideal = bayes_gap.ideal_at_mask(hmm, inputs[: settings.measure.num_inputs], batch_size=size)
    same: Row = {'num_states': trial.point.num_states, 'trial': trial.number, 'unigram_gap': unigram_gap(ideal)}
    model = pretraining.tuned_model(settings.bert_module())

    def add_tuned(name: str, params: object, methods: list[str], **fields: object) -> None:
      frozen = tuning.FrozenModel(name, model, params, hmm)
      for method in methods:
        for tuned_task in tuning.tune(tuning.Job(trial, frozen, method, tasks, downstream), reporter):
          of_task = {field: tuned_task.measured[field] for field in _MEASURED}
          rows.append({**same, **fields, 'task': tuned_task.task, 'method': method, **of_task})

    on_bert = [method for method in trial.methods if 'bert' in METHODS[method].models]
    add_tuned(NONE, None, [method for method in trial.methods if method not in on_bert], step=None, kl_at_mask=None)
    every, last = settings.pretrain.measure_every, settings.pretrain.num_steps
    steps = tuple(sorted({*settings.checkpoints, *range(0, last, every), last}))
    for step, params in pretraining.params_along(settings, hmm, trial.keys().pretraining, steps, reporter):
      params = jax.device_put(params)
      kl = bayes_gap.measure_gap(model, params, ideal, batch_size=size).kl
      reporter.say(f'step {step}: KL at [MASK] {kl:.3f} of {same["unigram_gap"]:.3f} nats')
      if step in settings.checkpoints:
        add_tuned('bert', params, on_bert, step=step, kl_at_mask=kl)
      else:
        nothing = dict.fromkeys(('task', 'method', *_MEASURED))
        rows.append({**same, 'step': step, 'kl_at_mask': kl, **nothing})
  return rows


def unigram_gap(ideal: bayes_gap.Ideal) -> float:
  """The mean KL(G || mean of G) at the [MASK] in nats: the gap of a model that predicts only token frequencies."""
  probs = np.asarray(ideal.token_probs, np.float64)[:, 0]
  return float(scipy.special.rel_entr(probs, probs.mean(0)).sum(-1).mean())


def tables(records: pd.DataFrame, settings: PlateauSettings) -> dict[str, Table]:
  """All tables, only from records."""
  steps, without = on_bert(records), records[records['step'].isna()]
  last = steps[steps['step'] == steps['step'].max()]
  hmm = lambda rows: dict(zip(('|H|', 'HMM'), map(str, rows[HMM].iloc[0])))
  beside = {trial: rows for trial, rows in without.groupby(HMM)}
  return {
    'left': table(
      'BERTs whose KL at the [MASK] is below half of the unigram gap after the last step; percent [95% interval]',
      [
        {'|H|': str(size), 'left the plateau': proportion(rows.groupby('trial')['gap_share'].first() < LEFT)}
        for size, rows in last.groupby('num_states')
      ],
    ),
    'ends': table(
      'After the last step, by HMM: KL at the [MASK] and unigram gap in nats; test accuracy in percent',
      [
        hmm(rows)
        | {'KL': f'{rows["kl_at_mask"].iloc[0]:.3f}', 'unigram gap': f'{rows["unigram_gap"].iloc[0]:.3f}'}
        | _accuracies(pd.concat([rows, beside.get(trial, rows[:0])]), '{0.mean:.1f}')
        for trial, rows in last.groupby(HMM)
      ],
    ),
    'along': table(
      'Along pretraining: KL at the [MASK] as a share of the unigram gap, and test accuracy, in percent, mean [95% '
      'interval over HMMs]',
      by_step(steps, lambda rows: _accuracies(rows, '{0}')),
    ),
  }


def by_step(steps: pd.DataFrame, cells: Callable[[pd.DataFrame], dict[str, str]]) -> list[dict[str, str]]:
  """A row for each |H| and step: KL as a share of the unigram gap, and cells of these records."""
  return [
    {'|H|': str(size), 'step': f'{step:g}', 'n': str(rows['trial'].nunique())}
    | {'KL, % of gap': f'{100 * by_unit(rows, [], "gap_share", HMM).mean():.1f}'}
    | cells(rows)
    for (size, step), rows in steps.groupby(['num_states', 'step'])
  ]


def on_bert(records: pd.DataFrame) -> pd.DataFrame:
  """The records of methods on BERT, with KL as a share of the unigram gap."""
  records = records.assign(gap_share=records['kl_at_mask'] / records['unigram_gap'])
  return records.dropna(subset=['step', 'method'])


def _accuracies(rows: pd.DataFrame, form: str) -> dict[str, str]:
  """The mean accuracy of each method, and of the majority class, by their headings."""
  cells = {
    METHODS[name].label: percent(by_unit(select(rows, method=name), [], 'accuracy', HMM))
    for name in rows['method'].unique()
  }
  cells['majority'] = percent(by_unit(rows, [], 'majority_accuracy', HMM))
  return {heading: form.format(interval) for heading, interval in cells.items()}


@figures_lib.styled
def draw(
  records: pd.DataFrame, settings: PlateauSettings, name: str, field: str, level: str
) -> dict[str, matplotlib.figure.Figure]:
  """The figure `name` of a field against KL as a share of the unigram gap: a panel for each |H|, a mark for an HMM at a
  step. {} if no method was tuned on BERT."""
  steps = on_bert(records)
  if steps.empty:
    return {}
  figure, panels = figures_lib.panels(settings.figure, steps['num_states'].nunique(), sharex=True)
  for axes, (size, of_size) in zip(panels, steps.groupby('num_states')):
    for method, rows in of_size.groupby('method'):
      means = 100 * rows.groupby(['trial', 'step'])[['gap_share', field]].mean()
      style = figures_lib.style_of(str(method)) | dict(linestyle='', markersize=4, markerfacecolor='none')
      axes.plot(means['gap_share'], means[field], label=METHODS[str(method)].label, **style)
    axes.axhline(100 * by_unit(of_size, [], level, HMM).mean(), color='0.45', linestyle='-.', label=_LABELS[level])
    axes.axvline(100 * LEFT, color='0.6', linewidth=0.9, linestyle=':', zorder=0)
    axes.set(title=f'|H| = {size}', xlabel='KL at the [MASK], % of the unigram gap')
    axes.xaxis.set_inverted(True)
  panels[0].set_ylabel(_LABELS[field])
  counts = steps.groupby('num_states')['trial'].nunique()
  title, counted = (
    f'{_LABELS[field].partition(" (")[0]} along pretraining',
    f'HMMs: n = {counts.min()} to {counts.max()}',
  )
  figures_lib.finish(figure, records, title.capitalize(), counted, 'a mark for each HMM and step')
  return {name: figure}


def _figures(records: pd.DataFrame, settings: PlateauSettings) -> dict[str, matplotlib.figure.Figure]:
  return draw(records, settings, 'plateau', 'accuracy', 'majority_accuracy')


STUDY = Study(in_parts(_parts), tables, _figures, checks.check_grid)
