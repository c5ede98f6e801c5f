"""The tables and the figure of the study of degradation, from records alone."""

import matplotlib.figure
import numpy as np
import rich.box
import rich.table

from experiments.analysis import figures, report, statistics
from experiments.analysis.statistics import Difference
from experiments.records.results import Record
from experiments.settings.groups import FigureSettings
from experiments.studies.degradation import contrasts
from experiments.studies.degradation.contrasts import Condition
from experiments.studies.degradation.methods import LABELS

# The share of the gap between the majority class and 100% that a prompt closes where it solves its task.
SOLVES = 0.5
# Ways that are compared across conditions.
ACROSS = ('construction', 'weighted', 'converged_head', 'converged_prompt')

_TITLES = {
  'construction': "theorem's\nconstruction",
  'weighted': 'weighted\ninverse',
  'converged_built': "theorem's prompt,\nconverged head",
  'converged_head': 'converged\nhead',
  'trained_head': 'trained\nhead',
  'converged_prompt': 'trained prompt,\nconverged head',
  'trained_prompt': 'trained prompt\nand head',
}
_DAMAGES = {'': '', 'singular_value': 'singular value {:g}', 'leak': 'leak {:g}'}
_ERRORS = {'noise': 'noise {:g}', 'short_context': 'short context {:g}', 'bert': 'BERT, {:g} steps'}
_STYLES = {
  'construction': dict(color='#000000', marker='^', linestyle=':'),
  'weighted': dict(color='#009E73', marker='D', linestyle='-.'),
  'converged_head': figures.style_of('head'),
  'converged_prompt': figures.style_of('prompt'),
}
_MASSES = {
  'without': 'no\nprompt',
  'start': 'untrained\nprompt',
  'trained': 'trained,\nmu on H*',
  'control': 'trained,\nelsewhere',
}


def render(records: list[Record]) -> str:
  """All tables, as plain text."""
  return '\n'.join(make(records) for make in TABLES.values() if make(records))


def name_of(condition: Condition) -> str:
  """A condition in words, without its theorem."""
  damage = _DAMAGES[condition.damage].format(condition.degree)
  if condition.error == 'noise' and not condition.level:
    return damage or 'exact G'
  return ', '.join(filter(None, [damage, _ERRORS[condition.error].format(condition.level)]))


def accuracy_table(records: list[Record]) -> str:
  """Accuracies by condition and way, a table for each theorem."""
  return _for_each_theorem(records, 'test accuracy in percent', _accuracies)


def difference_table(records: list[Record]) -> str:
  """Paired differences between ways."""
  found = contrasts.between_ways(records)

  def cells(condition: Condition, _: list[Record]) -> report.Row:
    pairs = contrasts.PAIRS
    return [
      (_minus(*(_TITLES[way] for way in pair)), _cell(found.get((condition, *pair)), len(found))) for pair in pairs
    ]

  return _for_each_theorem(records, f'paired differences in points; {_marked(len(found))}', cells)


def condition_table(records: list[Record]) -> str:
  """Paired differences between conditions; empty where none has a reference."""
  found = contrasts.between_conditions(records, ACROSS)

  def cells(condition: Condition, _: list[Record]) -> report.Row:
    compared = (condition, ACROSS[0]) in found
    return [(_TITLES[way], _cell(found[condition, way], len(found))) for way in ACROSS] if compared else []

  title = 'minus the HMM as it is at the same noise, or minus noise of the same KL, in points'
  return _for_each_theorem(records, f'{title}; {_marked(len(found))}', cells) if found else ''


def mass_table(records: list[Record]) -> str:
  """The mass on H* by HMM where a model is as good as it gets, with the control; the mean where HMMs are many."""
  rows = []
  for error, level in controlled_levels(records):
    masses = contrasts.masses(records, error, level)
    model = _ERRORS[error].format(level) if error == 'bert' else 'exact G'
    row = [('model', model), ('HMMs', str(len(masses['trained'])))]
    row += [(title, str(statistics.mean_interval(masses[name]))) for name, title in _MASSES.items()]
    for pair, found in contrasts.between_masses(records, error, level).items():
      row.append((_minus(*(_MASSES[name] for name in pair)), _cell(found, len(contrasts.MASS_PAIRS))))
    rows.append(row)
  title = f'Mean posterior mass on H* in percent, read off predictions; {_marked(len(contrasts.MASS_PAIRS))}'
  return report.as_text(report.from_rows(title, rows))


def prompt_table(records: list[Record]) -> str:
  """Each BERT of Theorem 3.6: whether its prompts solve their tasks, and the mass on H*."""
  rows = []
  for own, control in pairs_of_prompts(records):
    row = [('BERT', str(own['hmm'])), ('KL', f'{own["kl"]:.3f}')]
    for name, record in (('mu on H*', own), ('mu elsewhere', control)):
      row.append((f'majority,\n{name}', f'{100 * record["majority_accuracy"]:.1f}'))
      row.append((f'prompt,\n{name}', f'{100 * record["accuracy"]["trained_prompt"]:.1f}'))
      row.append(('of the gap', f'{gap_closed(record):.2f}'))
    masses = {**own['mass'], 'control': control['mass']['trained']}
    rows.append(
      row + [(f'mass,\n{_MASSES[name].replace(chr(10), " ")}', f'{100 * masses[name]:.1f}') for name in _MASSES]
    )
  title = f'Each BERT; a prompt solves its task where it closes {SOLVES:g} of the gap from the majority class to 100%'
  return report.as_text(report.from_rows(title, rows)) if rows else ''


TABLES = {
  'accuracy': accuracy_table,
  'differences': difference_table,
  'conditions': condition_table,
  'mass': mass_table,
  'prompts': prompt_table,
}


def gap_closed(record: Record) -> float:
  """The share of the gap from the majority class to 100% that the trained prompt and head close."""
  majority = record['majority_accuracy']
  return (record['accuracy']['trained_prompt'] - majority) / (1 - majority)


def pairs_of_prompts(records: list[Record]) -> list[tuple[Record, Record]]:
  """BERT's prompt for the theorem's own task and for the control, by HMM."""
  of_bert = [record for record in records if record['error'] == 'bert' and record['theorem'] == '3.6']
  of_kind = (sorted(statistics.select(of_bert, kind=kind), key=lambda r: r['hmm']) for kind in ('task', 'control'))
  return list(zip(*of_kind))


def _for_each_theorem(records: list[Record], title: str, cells) -> str:
  """A table of a theorem has a row for each condition of which `cells` says something."""
  texts = []
  for theorem in dict.fromkeys(record['theorem'] for record in records):
    rows = []
    for condition in contrasts.conditions(statistics.select(records, theorem=theorem)):
      chosen = contrasts.condition_records(records, condition)
      found = cells(condition, chosen)
      if found:
        rows.append([('made worse by', name_of(condition)), ('KL', _kl(chosen)), *found])
    if rows:
      hmms = len({record['hmm'] for record in statistics.select(records, theorem=theorem)})
      texts.append(_as_text(f'Theorem {theorem}, {hmms} HMMs: {title}', rows))
  return '\n'.join(texts)


def _as_text(title: str, rows: list[report.Row]) -> str:
  """As `report.from_rows`, with the first column as text."""
  columns = [column for column in zip(*rows) if any(cell for _, cell in column)]
  table = rich.table.Table(title=title, box=rich.box.SIMPLE)
  for index, ((name, _), *_) in enumerate(columns):
    table.add_column(name, justify='right' if index else 'left', no_wrap=True)
  for row in zip(*columns):
    table.add_row(*(cell for _, cell in row))
  return report.as_text(table)


def _accuracies(_: Condition, rows: list[Record]) -> report.Row:
  majority = statistics.mean_interval([100 * row['majority_accuracy'] for row in rows])
  found = {way: contrasts.accuracies(rows, way) for way in LABELS}
  cells = [
    (_TITLES[way], str(statistics.mean_interval(values)) if len(values) else '') for way, values in found.items()
  ]
  return [('majority', str(majority)), *cells]


def _kl(rows: list[Record]) -> str:
  # That of the exact model to itself is zero but for float32.
  return f'{abs(round(np.mean([row["kl"] for row in rows]), 5)):.2g}'


def _minus(first: str, second: str) -> str:
  """Of two titles."""
  one, other = (title.replace('\n', ' ') for title in (first, second))
  return f'{one}\n- {other}'


def _cell(found: Difference | None, count: int) -> str:
  return '' if found is None else f'{found.interval}{"*" if contrasts.is_order(found, count) else " "}'


def _marked(count: int) -> str:
  return f'*: p < {contrasts.LEVEL:g} / {count}'


def controlled_levels(records: list[Record]) -> list[tuple[str, float]]:
  """The error and level of each model that has a control."""
  return list(
    dict.fromkeys((record['error'], record['level']) for record in statistics.select(records, kind='control'))
  )


@figures.styled
def draw(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure:
  """Accuracy against the error of the model for each theorem with several levels of it, and the mass on H*."""
  tasks = statistics.select(records, kind='task', damage='')
  lines = {
    (theorem, error): statistics.select(tasks, theorem=theorem, error=error)
    for theorem in ('3.3', '3.6')
    for error in ('noise', 'bert')
  }
  lines = {of: rows for of, rows in lines.items() if len({row['level'] for row in rows}) > 1}
  figure, panels = figures.panels(settings, len(lines) + 1)
  for axes, ((theorem, error), rows) in zip(panels, lines.items()):
    _draw_lines(axes, rows, error)
    axes.set_title(f'Theorem {theorem}; {_counted(rows)}')
  panels[0].set_ylabel('test accuracy (%)')
  _draw_masses(panels[-1], records)
  figures.finish(figure, figures.caption(records))
  return figure


def _draw_lines(axes, rows: list[Record], error: str) -> None:
  levels = sorted({row['level'] for row in rows})
  # Zero has a place of its own on the logarithmic axis.
  axes.set_xscale('symlog', linthresh=levels[1] if not levels[0] else levels[0], linscale=0.6)
  at = lambda level: statistics.select(rows, level=level)
  for place, (way, style) in enumerate(_STYLES.items()):
    samples = {level: contrasts.accuracies(at(level), way) for level in levels}
    figures.draw_line(axes, samples, LABELS[way], style, 5 * (place - 1.5))
  figures.draw_majority(axes, {x: np.array([100 * row['majority_accuracy'] for row in at(x)]) for x in levels})
  axes.set_xticks(levels, [f'{x:g}' if error == 'noise' else f'{x:g}\n{_kl(at(x))}' for x in levels])
  axes.minorticks_off()
  kl = 'KL(G || model) at the [MASK] (nats)'
  axes.set_xlabel(kl if error == 'noise' else f'steps of pretraining\n{kl}')


def _draw_masses(axes, records: list[Record]) -> None:
  """A point for each model and prompt."""
  for place, (error, level) in enumerate(controlled_levels(records)):
    masses = contrasts.masses(records, error, level)
    samples = {float(index): masses[name] for index, name in enumerate(_MASSES)}
    style = dict(color=('#CC79A7', '#000000')[place], marker='P', linestyle='none')
    # Its place on the axis says what it is, not the legend.
    figures.draw_line(axes, samples, '_mass', style)
    model = _ERRORS[error].format(level) if error == 'bert' else 'exact G'
    axes.set_title(f'Mass on H*, {model}; HMMs: n = {len(masses["trained"])}')
  axes.set_xticks(range(len(_MASSES)), list(_MASSES.values()))
  axes.set_ylabel('posterior mass (%)')


def _counted(rows: list[Record]) -> str:
  return figures.counted([len({row['hmm'] for row in rows})], 'HMMs')
