"""The tables and the figure of the campaign, from records alone."""

from collections.abc import Sequence

import matplotlib.figure
import numpy as np

from experiments.analysis import figures, report as report_lib, statistics
from experiments.records.results import Record
from experiments.settings.groups import FigureSettings
from experiments.studies.faults import watch
from experiments.studies.theory.tables import Table

SIGNALS = ('SIGTERM', 'SIGINT')
_STYLES = {'SIGTERM': dict(color='#0072B2', marker='o'), 'SIGINT': dict(color='#D55E00', marker='^')}
_UNITS = {'memory': 'memory (MB)', 'files': 'open files', 'threads': 'threads'}
_LONGEST = 110


def render(records: list[Record]) -> str:
  """All tables that there are records for, as plain text."""
  found = [make(records) for make in TABLES.values()]
  return '\n'.join(report_lib.as_text(table.rich()) for table in found if table)


def faults(records: list[Record]) -> Table | None:
  """What was tried with every protection in place."""
  rows = [[fault, *_counts(each)] for fault, each in by_fault(statistics.select(records, without='')).items()]
  rows.append(['all', *_counts(statistics.select(records, without=''))])
  return Table('Faults', ['fault', 'tried', 'survived', 'lost'], rows, 1) if records else None


def protections(records: list[Record]) -> Table | None:
  """The same with one protection taken away on purpose."""
  chosen = [record for record in records if record['without']]
  names = dict.fromkeys((record['without'], record['fault']) for record in chosen)
  rows = [[*pair, *_counts(statistics.select(chosen, without=pair[0], fault=pair[1]))] for pair in names]
  columns = ['without', 'fault', 'tried', 'survived', 'lost']
  title = 'The same faults with one protection taken away, which have to be lost'
  return Table(title, columns, rows, 2) if rows else None


def phases(records: list[Record]) -> Table | None:
  """In which phase of the run it was killed or told to stop, and how long it took to do so."""
  kept = statistics.select(records, without='')
  killed = [record for record in kept if record['fault'].startswith('kill -9 ') and 'phase' in record]
  told = {name: [r for r in kept if r['fault'] == name] for name in SIGNALS}
  rows = []
  for phase in watch.PHASES:
    cells = [str(sum(record['phase'] == phase for record in killed))]
    for each in told.values():
      seconds = [record['seconds'] for record in each if record['phase'] == phase and record['seconds'] is not None]
      cells += [str(len(seconds)), f'{max(seconds):.1f}' if seconds else '']
    rows.append([phase, *cells])
  columns = ['phase', 'kill -9', *(cell for name in SIGNALS for cell in (name, 'longest, s'))]
  title = 'Phases that were hit, and seconds from a signal to the end'
  return Table(title, columns, rows, 1) if killed or any(told.values()) else None


def flatness(records: list[Record]) -> Table | None:
  """What a trial of the long-lived process adds to what it takes."""
  rows = []
  for record in records:
    if 'slope' in record:
      found, unit = record['slope'], _UNITS[record['fault'].removeprefix('soak: ')]
      slope, low, high = ('' if found[name] is None else f'{found[name]:.2g}' for name in ('slope', 'low', 'high'))
      rows.append([unit, record['without'], slope, f'{low} to {high}', f'{record["limit"]:g}'])
  columns = ['of the long-lived process', 'without', 'a trial adds', '95% interval', 'limit']
  return Table('Soak: what a trial adds to what the process takes', columns, rows, 2) if rows else None


def losses(records: list[Record]) -> Table | None:
  """Why what was lost was lost, with every protection in place."""
  lost = [record for record in statistics.select(records, without='') if record['lost']]
  rows = [[record['fault'], record['lost'][:_LONGEST]] for record in lost]
  return Table('Lost', ['fault', 'why'], rows, 2) if rows else None


TABLES = {'faults': faults, 'protections': protections, 'phases': phases, 'flatness': flatness, 'losses': losses}


def by_fault(records: Sequence[Record]) -> dict[str, list[Record]]:
  """The records of each fault, in the order of the records."""
  found: dict[str, list[Record]] = {}
  for record in records:
    found.setdefault(record['fault'], []).append(record)
  return found


def _counts(records: Sequence[Record]) -> list[str]:
  tried, survived = (sum(record[name] for record in records) for name in ('tried', 'survived'))
  return [str(tried), str(survived), str(tried - survived)]


@figures.styled
def draw(records: list[Record], settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """Seconds to stop by phase, and what the long-lived process takes; None where there is neither."""
  told = [record for record in statistics.select(records, without='') if record['fault'] in SIGNALS]
  soaked = [record for record in records if record['fault'] == 'soak']
  count = bool(told) + 2 * bool(soaked)
  if not count:
    return None
  figure = matplotlib.figure.Figure((settings.width, settings.height), settings.dpi)
  panels = list(figure.subplots(1, count, squeeze=False)[0])
  if told:
    _draw_seconds(panels.pop(0), told)
  if soaked:
    _draw_soak(panels, soaked[0])
  figures.finish(figure, figures.caption(records))
  return figure


def _draw_seconds(axes, told: list[Record]) -> None:
  """A point for each run."""
  shown = [phase for phase in watch.PHASES if any(record['phase'] == phase for record in told)]
  for place, (name, style) in enumerate(_STYLES.items()):
    chosen = [r for r in told if r['fault'] == name and r['seconds'] is not None]
    x = np.array([shown.index(record['phase']) for record in chosen]) + 0.2 * (place - 0.5)
    axes.plot(x, [record['seconds'] for record in chosen], linestyle='none', clip_on=False, label=name, **style)
  axes.set_xticks(range(len(shown)), shown, rotation=30, ha='right')
  axes.set_ylabel('from signal to end (s)')
  axes.set_ylim(bottom=0)
  axes.set_title(f'Told to stop; runs: n = {len(told)}')


def _draw_soak(panels, soaked: Record) -> None:
  """Memory, then open files and threads, along the soak."""
  samples = soaked['samples']
  minutes = [sample['minutes'] for sample in samples]
  memory, counts = panels
  memory.plot(minutes, [sample['memory'] for sample in samples], color='#000000', marker='', linestyle='-')
  memory.set_ylabel('resident memory (MB)')
  memory.set_title(f'Soak: {soaked["trials"]} trials, {soaked["kills"]} kills beside it')
  for name, style in (
    ('files', dict(color='#0072B2', linestyle='-')),
    ('threads', dict(color='#D55E00', linestyle='--')),
  ):
    counts.plot(minutes, [sample[name] for sample in samples], label=_UNITS[name], marker='', **style)
  counts.set_ylabel('number')
  counts.set_title('The same process')
  for axes in panels:
    axes.set_ylim(bottom=0)
    axes.set_xlabel('minutes')
