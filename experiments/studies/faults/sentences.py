"""The sentences of docs/faults.md that have numbers in them, from records alone."""

from collections.abc import Callable
import pathlib

from experiments.analysis import statistics
from experiments.records import files, loading, results
from experiments.records.results import Record
from experiments.studies.faults import report, watch


def setup(records: list[Record], folder: pathlib.Path) -> str:
  """What was run, how long it takes when nothing happens to it, where, and from what."""
  config = loading.json_value(folder / results.CONFIG_NAME)
  made = files.read_json_lines(folder / results.ENVIRONMENT_NAME)
  commits = sorted({row['commit'] for row in made})
  minutes = sum(row['seconds'] for row in made) / 60
  packages = made[0]['packages']
  changed = ' with uncommitted changes' if any(row['uncommitted_changes'] for row in made) else ''
  seconds = [record['undisturbed'] for record in records if 'undisturbed' in record][:1]
  alone = ''.join(f'Undisturbed, with compiled programs at hand, it takes {each:.1f} s. ' for each in seconds)
  return (
    f'The run is prompt_vs_head:smoke with {", ".join(config["disturbed"])}. {alone}The campaign took '
    f'{minutes:.0f} minutes on {made[0]["cpu"]}, {made[0]["platform"]}, jax {packages["jax"]}, '
    f'Python {made[0]["python"]}, commit {", ".join(commits)}{changed}.'
  )


def verdict(records: list[Record], folder: pathlib.Path) -> str:
  """How many of all were lost, what no protection taken away was seen by, and which phases no kill hit."""
  kept, without = statistics.select(records, without=''), [record for record in records if record['without']]
  tried, survived = (sum(record[name] for record in kept) for name in ('tried', 'survived'))
  lines = [f'{tried} faults were tried, {survived} survived, {tried - survived} lost.']
  unseen = sorted({r['without'] for r in without} - {r['without'] for r in without if r['survived'] < r['tried']})
  seen = len({record['without'] for record in without}) - len(unseen)
  if without:
    rest = f'; not so without {", ".join(unseen)}' if unseen else ''
    lines.append(f'With one of {seen} protections taken away something was lost every time{rest}.')
  none = [record for record in kept if not record['tried']]
  lines += [f'Not tried here: {record["fault"]}, {record["why"]}.' for record in none]
  return ' '.join(lines)


def stopping(records: list[Record], folder: pathlib.Path) -> str:
  """The longest time from a signal to the end, and what it is bounded by."""
  told = [record for record in statistics.select(records, without='') if record.get('seconds') is not None]
  once = [record for record in told if record['fault'] in report.SIGNALS]
  if not once:
    return 'No records yet.'
  most = loading.json_value(folder / results.CONFIG_NAME)['most_seconds_to_stop']
  longest = max(once, key=lambda record: record['seconds'])
  twice = max((record['seconds'] for record in told if record['fault'] not in report.SIGNALS), default=0.0)
  return (
    f'Of {len(once)} runs that were told to stop, the longest took {longest["seconds"]:.1f} s, in the phase '
    f'{longest["phase"]}, of the {most:g} s that it may take; after a second signal {twice:.2f} s.'
  )


def killed(records: list[Record], folder: pathlib.Path) -> str:
  """Phases that kills hit."""
  kept = [r for r in statistics.select(records, without='') if r['fault'].startswith('kill -9')]
  once = [record['phase'] for record in kept if record['fault'].startswith('kill -9 ')]
  hit = [phase for phase in watch.PHASES if phase in once]
  missed = [phase for phase in watch.PHASES if phase not in hit]
  rest = f' None hit {", ".join(missed)}.' if missed else ' Every phase was hit.'
  return f'{len(kept)} runs were killed at least once.{rest}'


SENTENCES: dict[str, Callable[[list[Record], pathlib.Path], str]] = {
  'setup': setup,
  'verdict': verdict,
  'stopping': stopping,
  'killed': killed,
}
