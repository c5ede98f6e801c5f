"""python -m experiments.studies.evidence_page: fills Figure 3 in README and docs from its records.

Of a run they are what `sweep.write` leaves: config.json, results.jsonl, environments/ and timing.jsonl, copied from its
workdir into the folder, the last with lines of runs that pretrained its models.
"""

from collections.abc import Callable, Iterator
import pathlib
import textwrap

import numpy as np

from experiments.analysis import error_budget, figures, pages, report, statistics
from experiments.analysis.statistics import Difference, Interval
from experiments.pipeline import sweep
from experiments.records import environment, files, results
from experiments.records.results import Record
from experiments.runtime import timing
from experiments.settings.grid import Point, Settings
from experiments.settings.methods import METHODS
from experiments.studies import registry

PAGES = (pages.DOCS.parent / 'README.md', pages.DOCS / 'results.md')
FOLDERS = tuple(pages.DOCS / 'results' / 'small' / name for name in ('figure_3_left', 'figure_3_right'))
_WIDTH = 120
# The budget of the method that each line of the paper is of.
_BUDGETS = {'head': error_budget.BUDGETS[0], 'attention': error_budget.BUDGETS[1], 'prompt': error_budget.BUDGETS[2]}
# Contrasts of the right panel that README has.
_IN_BRIEF = (
  'memory attention - vanilla head',
  'memory attention - vanilla attention',
  'attention - attention on constant G',
)

# What is said of a contrast at a size.
_ABOVE, _BELOW, _OPEN = 'above 0', 'below 0', 'not told from 0'

_APART = (
  "Where ours are further from the paper's than the root of both squared half-widths' sum, uncorrected for number:"
)

_ALT = {
  'figure_3_left': "Accuracy against the number of hidden states, with the paper's points",
  'figure_3_right': "Accuracy against the number of joint states, with the paper's points",
  'controls': 'Attention beside its controls and a linear head, against the number of joint states',
  'budget': 'Signed steps from 100% to what the protocol reaches on BERT',
}


def section(name: str, folder: pathlib.Path) -> str | None:
  """A part of the pages; None, which leaves it as it is, where the folder has no records."""
  records = results.load(folder)
  if not records:
    return None
  text = SECTIONS[name](records, _settings(folder), folder)
  # README has few lines, and may have long ones.
  return text if name in ('readme', 'brief') else '\n'.join(map(_wrapped, text.splitlines()))


def _settings(folder: pathlib.Path) -> Settings:
  return registry.from_record(results.config(folder) or {})


def _wrapped(line: str) -> str:
  """At most 120 columns, but for tables and images."""
  if len(line) <= _WIDTH or line[:1] in ('|', '!', ' ', '`'):
    return line
  return textwrap.fill(line, _WIDTH, subsequent_indent='  ' * line.startswith('- '), break_on_hyphens=False)


def _setup(records: list[Record], settings: Settings, folder: pathlib.Path) -> str:
  """What was run, where, and what it took."""
  counts = ', '.join(
    f'{_place(point)}: {len({record["trial"] for record in rows})}'
    for point, rows in statistics.by_point(records).items()
  )
  spent = files.read_json_lines(folder / timing.FILE_NAME)
  made = environment.load(folder, records).values()
  hours = sum(sum(row['cpu_seconds'].values()) for row in spent) / 3600
  known = {record['trial_id'] for record in records}
  before = sum(row['trial_id'] not in known for row in spent)
  whose = f' with {before} runs before that pretrained their models' if before else ''
  took = f'They took {hours:.1f} hours of CPU time{whose}, on' if spent else 'They were made on'
  where = ' and '.join(dict.fromkeys(line['cpu'] for line in made))
  name = folder.relative_to(pages.DOCS.parent) if folder.is_relative_to(pages.DOCS.parent) else folder
  return (
    f'HMMs on record, {settings.tasks_per_trial} tasks each: {counts}. {took} {where}. The unit of every interval is '
    f'the {_unit(records)}, mean over its tasks first; methods are paired by task within it. Any of the trials is run '
    f'again and compared with its record by\n\n```bash\npython -m experiments.main --mode=verify --workdir={name} '
    f'--trials=0\n```'
  )


def _unit(records: list[Record]) -> str:
  return 'HMM' if statistics.unit_of(records) == ('trial',) else 'task of one HMM'


def _tables(records: list[Record], settings: Settings, folder: pathlib.Path) -> str:
  """Every table as the run prints it, but for the budget's."""
  return f'```\n{report.render(records, settings.figure.paper_overlay)}```'


def _panel(records: list[Record], settings: Settings, folder: pathlib.Path) -> str:
  """The figure, what is told apart in it, and the paper beside it."""
  return '\n'.join([_image(folder, folder.name), '', *_contrasts(records), *_beside_paper(records)])


def _image(folder: pathlib.Path, name: str, where: str = '') -> str:
  return f'![{_ALT[name]}]({where}{drawn_to(folder, name).name})'


def _place(point: Point) -> str:
  return f'|M| = {point.memory_size}' if point.memory_size else f'|H| = {point.num_states}'


def _contrasts(records: list[Record]) -> list[str]:
  """Of each contrast where it is told from 0, where it is not, and what could have been."""
  return [f'- **{title}** on BERT: {_format_significant(found)}.' for title, found in report.contrasts(records).items()]


def _format_significant(found: dict[Point, Difference]) -> str:
  parts = []
  for verdict, points in _verdicts(found).items():
    places = []
    for point in points:
      difference = found[point]
      detectable = difference.detectable(report.LEVEL / len(found))
      could = '' if verdict != _OPEN or np.isnan(detectable) else f', detectable {detectable:.1f}'
      places.append(f'{_place(point)} ({difference.interval}{could})')
    if places:
      parts.append(f'{verdict} at {", ".join(places)}')
  return '; '.join(parts)


def _verdicts(found: dict[Point, Difference]) -> dict[str, list[Point]]:
  """Where a contrast is told above 0, below it, or from it neither way, after Holm's correction."""
  corrected = statistics.holm([difference.p_value for difference in found.values()])
  where: dict[str, list[Point]] = {_ABOVE: [], _BELOW: [], _OPEN: []}
  for (point, difference), p_value in zip(found.items(), corrected):
    is_told = p_value < report.LEVEL
    where[(_ABOVE if difference.interval.mean > 0 else _BELOW) if is_told else _OPEN].append(point)
  return where


def _beside_paper(records: list[Record]) -> list[str]:
  """Where ours on BERT are further from the paper's than intervals say, and the largest loss of ours there.

  That is where the distance of the means is more than the root of the sum of the squares of their half-widths, of which
  the paper's is 0 where it is not known.
  """
  found, of_points = [], statistics.by_point(records)
  for point, method, ours, paper, is_apart in _comparisons(records):
    if is_apart:
      loss = error_budget.largest_loss(of_points[point], _BUDGETS[method])
      what = f'the largest loss of ours there is {loss}' if loss else 'no loss of ours is told from the others there'
      distance = f'{paper} in the paper ({ours.mean - paper:+.1f})'
      found.append(f'- {METHODS[method].label} at {_place(point)}: {ours} here, {distance}; {what}.')
  return ['', _APART, '', *found] if found else []


def _comparisons(records: list[Record]) -> Iterator[tuple[Point, str, Interval, float, bool]]:
  """Each point of the paper that we have on BERT: its method, ours, the paper's, and whether they are apart."""
  unit, scale = statistics.unit_of(records), records[0]['scale']
  for point, rows in statistics.by_point(records).items():
    for method in _methods_of_paper(point, records):
      paper, half_width = (_paper(point, method, records, scale, what) for what in ('mean', 'ci95'))
      ours = statistics.percent(statistics.select(rows, model='bert', method=method), 'accuracy', unit)
      if paper is not None:
        yield point, method, ours, paper, abs(ours.mean - paper) > np.hypot(ours.half_width, half_width or 0)


def _verdict(records: list[Record]) -> str:
  """What the left panel reproduces, in a sentence or two."""
  where = _verdicts(report.contrasts(records)['prompt - head'])
  sizes = lambda points: ', '.join(str(point.num_states) for point in points)
  order = 'Its order is told at no size'
  if where[_ABOVE]:
    order = f'**Its order, where it can be told**: on BERT the prompt is above the head at |H| = {sizes(where[_ABOVE])}'
    order += f', and below it at |H| = {sizes(where[_BELOW])}' if where[_BELOW] else ', and told below it nowhere'
  elif where[_BELOW]:
    order = f'**Not its order**: on BERT the prompt is below the head at |H| = {sizes(where[_BELOW])}'
  apart = [is_apart for *_, is_apart in _comparisons(records)]
  words = f"{sum(apart)} of the paper's {len(apart)} points are further from ours than both half-widths, in quadrature"
  return f'{order}. {"**Not its numbers**: " if any(apart) else "Its numbers: "}{words}.'


def _methods_of_paper(point: Point, records: list[Record]) -> list[str]:
  """The methods whose accuracy on this text the paper draws, of those on record."""
  if any(record['memory_size'] for record in records):
    return [method for method in [report.representative_method(report.text_name(point), records)] if method in _BUDGETS]
  return [method for method in ('head', 'prompt') if statistics.select(records, model='bert', method=method)]


def _paper(point: Point, method: str, records: list[Record], scale: str, what: str) -> float | None:
  if any(record['memory_size'] for record in records):
    return report.paper_right(report.text_name(point), scale, what).get(point.joint_states)
  return report.paper_left(method, scale, what).get(point.num_states)


def _controls(records: list[Record], settings: Settings, folder: pathlib.Path) -> str:
  """The figure, where a control was run."""
  return _image(folder, 'controls') if figures.controls(records, settings.figure) else ''


def _budget(records: list[Record], settings: Settings, folder: pathlib.Path) -> str:
  """The figure and the tables of the error budget, and which loss dominates where."""
  if not error_budget.figure(records, settings.figure):
    return ''
  tables = ''.join(map(report.as_text, error_budget.tables(records)))
  return '\n'.join(
    [_image(folder, 'budget'), '', *(f'- {line}' for line in error_budget.sentences(records)), '', f'```\n{tables}```']
  )


def _readme(records: list[Record], settings: Settings, folder: pathlib.Path) -> str:
  """The figure of README, a table of the sizes with all draws, and what is told apart."""
  unit, pair = statistics.unit_of(records), ('head', 'prompt')
  shown = lambda row: f'| {" | ".join(row)} |'
  rows = [
    shown(['hidden states', 'HMMs', *(f'{of}: head / prompt' for of in ('BERT', 'exact G', 'the paper')), 'majority'])
  ]
  rows.append(shown(['---'] * 6))
  for point, of_point in statistics.by_point(records).items():
    if settings.num_draws(point) < settings.num_trials:
      continue
    ours = [
      [
        str(statistics.percent(statistics.select(of_point, model=model, method=method), 'accuracy', unit))
        for method in pair
      ]
      for model in ('bert', 'exact')
    ]
    paper = [str(_paper(point, method, records, settings.scale, 'mean') or '-') for method in pair]
    majority = statistics.percent(of_point, 'majority_accuracy', unit)
    counts = [str(point.num_states), str(len(majority.values))]
    rows.append(shown([*counts, *(' / '.join(each) for each in (*ours, paper)), f'{majority.mean:.1f}']))
  told = [
    f'- **{title}**, on BERT: {_format_significant(found)}.'
    for title, found in report.contrasts(records).items()
    if title == 'prompt - head'
  ]
  note = (
    f'Test accuracy in percent, mean ± half-width of the 95% interval; the unit is the {_unit(records)}, mean over '
    f"{settings.tasks_per_trial} tasks. Told from 0 is a difference with p < {report.LEVEL} after Holm's correction "
    f'for the number of sizes; detectable is what would be in 80% of such runs.'
  )
  losses = [f'- {line}' for line in error_budget.sentences(records)]
  return '\n'.join([_verdict(records), _image(folder, folder.name, 'docs/'), '', *rows, '', note, *told, *losses])


def _brief(records: list[Record], settings: Settings, folder: pathlib.Path) -> str:
  """What README says of the right panel: the paper's contrast, the same with one head, and a head without a model."""
  found = report.contrasts(records)
  told = [f'- **{title}**, on BERT: {_format_significant(found[title])}.' for title in _IN_BRIEF if title in found]
  losses = ' '.join(error_budget.sentences(records))
  return '\n'.join([*told, *([f'- {losses}'] if losses else [])])


SECTIONS: dict[str, Callable[[list[Record], Settings, pathlib.Path], str]] = {
  'setup': _setup,
  'panel': _panel,
  'tables': _tables,
  'controls': _controls,
  'budget': _budget,
  'readme': _readme,
  'brief': _brief,
}


def drawn_to(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Where the figure of a folder of records stands in `docs`."""
  return pages.DOCS / (f'{name}.png' if name == folder.name else f'{folder.name}_{name}.png')


def draw(folder: pathlib.Path) -> list[tuple[pathlib.Path, bytes]]:
  """The figures that the settings of a folder name, as files of `docs`."""
  settings, records = _settings(folder), results.load(folder)
  drawn = ((name, sweep.figure(name, records, settings.figure)) for name in settings.figures)
  return [(drawn_to(folder, name), figures.as_bytes(one, 'png')) for name, one in drawn if one]


if __name__ == '__main__':
  for folder in FOLDERS:
    if results.load(folder):
      for path, content in draw(folder):
        files.write_whole(path, content)
  for page in PAGES:
    pages.fill(page, section)
