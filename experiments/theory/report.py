"""The tables and figures that end a theory run, and the tables of an examination, from records alone."""

from collections.abc import Callable
import itertools
import math
import pathlib
from typing import Any

import matplotlib.figure
import numpy as np
import rich.box
import rich.table

from experiments import figures, report, results
from experiments.progress import Reporter
from experiments.results import Record
from experiments.settings import FigureSettings
from experiments.theory import appendix_report, impossibility_report, prevalence_report, verification_report

Cells = Callable[[list[Record]], list[str]]

_CONSTRUCTION: dict[str, Any] = dict(color='#000000', marker='^', linestyle=':')
STYLES = {'construction': _CONSTRUCTION, 'head': figures.style_of('head'), 'prompt': figures.style_of('prompt')}
_NAMES = {'construction': "theorem's construction", 'head': 'trained head', 'prompt': 'trained prompt and head'}
_METHODS = ('construction', 'head', 'prompt')
_STUDIES = {
  'noise': 'noisy G (KL)',
  'singular_value': 'smallest singular value of W',
  'leak': 'leak out of H*',
  'bert': 'BERT (steps)',
}
# Entries of a witness that are printed.
_SHOWN = 8


def show(tables: list[rich.table.Table], workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables, and keeps them in the workdir."""
  report.show('\n'.join(report.as_text(table) for table in tables), workdir, reporter)


def of_study(records: list[Record], seconds: dict[str, float], margin: float) -> list[rich.table.Table]:
  """Verification, impossibility, prevalence, degradation, concentration; those of which there are records.

  `seconds` are those of each part, and `margin` is that of near ties.
  """
  # Each with a field that its records alone have.
  makers = {
    'theorem': lambda rows: [table.rich() for table in verification_report.tables(rows)],
    'outcome': lambda rows: [table.rich() for table in impossibility_report.tables(rows)],
    'draw': lambda rows: [table.rich() for table in prevalence_report.tables(rows)],
    'method': lambda rows: [_degradation(rows)],
    'epoch': lambda rows: [_concentration(rows)],
    'claim': lambda rows: [appendix_report.claims(rows)],
    'gap_denominator': lambda rows: [appendix_report.gaps(rows)],
  }
  chosen = {field: [record for record in records if field in record] for field in makers}
  return [table for field, make in makers.items() if chosen[field] for table in make(chosen[field])]


def of_examination(records: list[Record]) -> list[rich.table.Table]:
  """Assumptions, and constructions with the linear program, each 120 columns wide at most."""
  is_assumption = lambda record: record['record'] == 'assumption'
  return [
    _assumptions([record for record in records if is_assumption(record)]),
    _constructions([record for record in records if not is_assumption(record)]),
  ]


def _grouped(title: str, records: list[Record], field: str, columns: list[str], cells: Cells) -> rich.table.Table:
  """A row for each value of `field`, and what `cells` says of its records."""
  table = rich.table.Table(title=title, box=rich.box.SIMPLE)
  for column in [field, *columns]:
    is_text = column in ('kind', 'model', 'assumed', 'also violated')
    table.add_column(column, justify='left' if is_text else 'right', no_wrap=True)
  for value in dict.fromkeys(record[field] for record in records):
    table.add_row(value, *cells(results.select(records, **{field: value})))
  return table


def _interval(records: list[Record], field: str) -> str:
  return str(results.mean_interval([100 * record[field] for record in records])) if records else ''


def _verification(records: list[Record], seconds: dict[str, float], margin: float) -> rich.table.Table:
  def cells(rows):
    both = lambda name: [row[f'{kind}_{name}'] for row in rows for kind in ('enumerated', 'sampled')]
    violated = [row['violates'] for row in rows if row['violates']]
    return [
      rows[0]['assumptions'],
      f'{violated[0]} in {len(violated)}' if violated else '',
      str(len(rows)),
      *(f'{sum(row[f"{kind}_in_region"] for row in rows):,}' for kind in ('enumerated', 'sampled')),
      *(f'{sum(both(name)):,}' for name in ('ties', 'disagreements', 'outside_margin')),
      f'{min(gap for gap in both("smallest_gap") if gap is not None):.1e}',
      f'{seconds.get(rows[0]["part"], np.nan):.0f}',
    ]

  title = f'Constructions beside exact labels; near ties: the two best exact scores differ by {margin:g} or less'
  columns = ['assumed', 'also violated', 'HMMs', 'every sequence', 'sampled', 'near ties', 'disagree', 'of them clear']
  return _grouped(title, records, 'theorem', [*columns, 'smallest gap', 'seconds'], cells)


def _degradation(records: list[Record]) -> rich.table.Table:
  title = 'Where the theorems say nothing: test accuracy in percent, mean ± half-width of the 95% interval over HMMs'
  table = rich.table.Table(title=title, box=rich.box.SIMPLE)
  for column in ('what is degraded', 'level', 'KL', 'majority', 'construction', 'trained head', 'trained prompt'):
    table.add_column(column, justify='right', no_wrap=True)
  for study, theorem in itertools.product(_STUDIES, ('3.3', '3.6')):
    chosen = results.select(records, study=study, theorem=theorem)
    for level, with_noise in dict.fromkeys((row['level'], row['kl'] > 0) for row in chosen):
      rows = [row for row in chosen if row['level'] == level and (row['kl'] > 0) == with_noise]
      kl = np.mean([row['kl'] if study == 'bert' else round(row['kl'], 5) for row in rows])
      cells = [_interval(results.select(rows, method=method), 'accuracy') for method in _METHODS]
      majority = _interval(results.select(rows, method='head'), 'majority_accuracy')
      table.add_row(f'{_STUDIES[study]}, {theorem}', f'{level:g}', f'{kl:.2g}', majority, *cells)
  return table


def _concentration(records: list[Record]) -> rich.table.Table:
  def cells(rows):
    first, last = (results.select(rows, epoch=choose(row['epoch'] for row in records)) for choose in (min, max))
    masses = _interval(last, 'mass_without'), _interval(first, 'mass_with'), _interval(last, 'mass_with')
    # The KL of the exact model to itself is zero but for float32.
    kl = abs(round(np.mean([row['kl'] for row in last]), 6))
    return [f'{kl:.2g}', *masses, _interval(last, 'accuracy')]

  title = 'Mean posterior mass on H* at the [MASK], read off the predictions, after training a prompt'
  columns = ['KL', 'without prompt', 'untrained prompt', 'trained prompt', 'accuracy']
  return _grouped(title, records, 'model', columns, cells)


def _assumptions(records: list[Record]) -> rich.table.Table:
  title = 'Assumptions of the paper, and how close each is to the other answer'
  table = rich.table.Table(title=title, box=rich.box.SIMPLE)
  for title, width in (('assumption', 11), ('holds', 5), ('why', 31), ('witness', 30), ('closeness', 28)):
    table.add_column(title, max_width=width, overflow='fold')
  listed = lambda fields: '\n'.join(f'{name.replace("_", " ")}: {_brief(value)}' for name, value in fields.items())
  for record in records:
    name, holds = record['statement'].removeprefix('Assumption '), 'yes' if record['holds'] else 'no'
    table.add_row(name, holds, record['reason'], listed(record['witness']), listed(record['closeness']))
  return table


def _constructions(records: list[Record]) -> rich.table.Table:
  title = 'What each construction achieves: its agreement with the exact label, in percent'
  table = rich.table.Table(title=title, box=rich.box.SIMPLE)
  table.add_column('construction', no_wrap=True)
  table.add_column('exists')
  table.add_column('texts', max_width=26)
  for title in ('possible', 'majority', 'agree', 'in\nregion', 'agree', 'clearly\nwrong', 'near\nties'):
    table.add_column(title, justify='right', no_wrap=True)
  for record in records:
    exists = record['exists'] if 'exists' in record else record['built']
    name, answer = record['statement'], {True: 'yes', False: 'no', None: '?'}[exists]
    kinds = [kind for kind in ('enumerated', 'sampled') if kind in record]
    if not kinds:
      table.add_row(name, answer, *_reason_cells(record))
    for kind in kinds:
      table.add_row(name, answer, *_checked_cells(kind, record[kind]))
      name = answer = ''
  return table


def _reason_cells(record: Record) -> list[str]:
  """Of the linear program; or of a construction, the assumption that fails, which its own table explains."""
  if 'longest' not in record:
    return [record['reason'].partition(':')[0]]
  return [f'every one up to length {record["longest"]}: {record["reason"]}', f'{record["sequences"]:,}']


def _checked_cells(kind: str, checked: Record) -> list[str]:
  texts = 'every one up to' if kind == 'enumerated' else 'sampled, of'
  # Rounded down, so that 100.00 is all of them.
  percent = lambda share: '' if share is None else f'{math.floor(1e4 * share) / 100:.2f}'
  return [
    f'{texts} length {checked["longest"]}',
    f'{checked["sequences"]:,}',
    percent(checked['majority']),
    percent(checked['agreement']),
    f'{checked["in_region"]:,}',
    percent(checked['agreement_in_region']),
    f'{checked["outside_margin_in_region"]:,}',
    f'{checked["ties_in_region"]:,}',
  ]


def _brief(value: Any) -> str:
  """A number, or the first of many, for a reader."""
  if isinstance(value, dict):
    return ', '.join(f'{key}: {_brief(entry)}' for key, entry in value.items())
  if isinstance(value, list):
    shown = [_brief(entry) for entry in value[:_SHOWN]] + ['...'] * (len(value) > _SHOWN)
    is_vector = any(isinstance(entry, float) for entry in value)
    return f'({", ".join(shown)})' if is_vector else f'{{{", ".join(shown)}}}'
  if value is None:
    return 'infinite'
  if isinstance(value, bool):
    return 'yes' if value else 'no'
  return f'{value:.3g}' if isinstance(value, float) else str(value)


@figures.styled
def noise(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy as the model departs from G: by noise for Theorems 3.3 and 3.6, and along the pretraining of a BERT."""
  figure, panels = figures.panels(settings, 3)
  chosen = [record for record in records if 'method' in record]
  for axes, theorem in zip(panels, ('3.3', '3.6')):
    rows = results.select(chosen, study='noise', theorem=theorem)
    _lines(axes, rows, f'noisy exact G, Theorem {theorem}', '{level:g}')
    axes.set_xlabel('KL(G || model) at the [MASK] (nats)')
  rows = results.select(chosen, study='bert', theorem='3.3')
  _lines(panels[2], rows, 'BERT along its pretraining, Theorem 3.3', '{level:g}\n{kl:.2g}')
  panels[2].set_xlabel('steps of pretraining\nKL(G || BERT) at the [MASK] (nats)')
  return _finished(figure, records, 'test accuracy (%)')


@figures.styled
def concentration(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """The posterior mass on H* at the [MASK] along the training of a prompt, and without a prompt, and the accuracy."""
  chosen = [record for record in records if 'epoch' in record]
  models = list(dict.fromkeys(record['model'] for record in chosen))
  figure, panels = figures.panels(settings, max(len(models), 1))
  for axes, model in zip(panels, models):
    rows = results.select(chosen, model=model)
    for place, (field, name, style) in enumerate(
      (
        ('mass_with', 'mass on H*, with the prompt', STYLES['prompt']),
        ('mass_without', 'mass on H*, without', STYLES['head']),
        ('accuracy', 'test accuracy', STYLES['construction']),
      )
    ):
      figures.draw_line(axes, _samples(rows, 'epoch', field), name, style, 7 * (place - 1))
    kl = abs(round(np.mean([row['kl'] for row in rows]), 6))
    axes.set_title(f'{figures.MODEL_NAMES[model]}, KL {kl:.2g} nats; {_counted(rows)}')
    axes.set_xlabel('epochs of prompt tuning')
  return _finished(figure, records, 'mean over test inputs (%)')


FIGURES: dict[str, Callable[[list[Record], FigureSettings], matplotlib.figure.Figure]] = {
  'noise': noise,
  'concentration': concentration,
}


def _lines(axes, records: list[Record], title: str, tick: str) -> None:
  """A line per method and the majority class at each level, in order, over HMMs."""
  levels = sorted({record['level'] for record in records})
  if len(levels) > 1:
    # Zero has a place of its own on the logarithmic axis.
    axes.set_xscale('symlog', linthresh=levels[1], linscale=0.6)
  for place, (method, style) in enumerate(STYLES.items()):
    samples = _samples(results.select(records, method=method), 'level', 'accuracy')
    figures.draw_line(axes, samples, _NAMES[method], style, 7 * (place - 1))
  known = [record for record in records if 'majority_accuracy' in record]
  figures.draw_majority(axes, _samples(known, 'level', 'majority_accuracy'))
  kls = [np.mean([row['kl'] for row in results.select(records, level=level)]) for level in levels]
  axes.set_xticks(levels, [tick.format(level=level, kl=kl) for level, kl in zip(levels, kls)])
  axes.minorticks_off()
  axes.set_title(f'{title}; {_counted(records)}')


def _samples(records: list[Record], by: str, field: str) -> dict[float, np.ndarray]:
  """The values over HMMs in percent, in order of `by`."""
  return {
    value: np.array([100 * record[field] for record in results.select(records, **{by: value})])
    for value in sorted({record[by] for record in records})
  }


def _counted(records: list[Record]) -> str:
  return figures.counted([len({record['hmm'] for record in records})], 'HMMs')


def _finished(figure, records: list[Record], unit: str) -> matplotlib.figure.Figure:
  figure.axes[0].set_ylabel(unit)
  figures.finish(figure, figures.caption(records))
  return figure
