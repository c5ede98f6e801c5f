"""The pin: what the suite computes at seed 0 and what its pages say, as they were before the house was rebuilt.

Run by hand: `python tests/pin.py` runs five experiments at scale `smoke` (about 4 minutes of CPU time), compares their
records with those in tests/pin/ field by field, and prints a line for each. `python tests/pin.py theory draws` compares
these alone. Exit code 1 if something differs. On the CPU and with the packages that made the pin all bits are equal;
elsewhere numbers of records within RELATIVE of each other count as equal, and the line says so. The fields
schema_version and environment, which say how and where a record was made, are not compared. The pin goes when the
rebuilding ends.
"""

import hashlib
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PIN = ROOT / 'tests' / 'pin'
EXPERIMENTS = ('prompt_vs_head', 'memory_vs_vanilla', 'theory', 'degradation', 'which_theorem')
RELATIVE = 1e-3
# What a number that is 0 but for rounding may be.
_ABSOLUTE = 1e-6
_NOT_COMPARED = {'schema_version', 'environment'}
# Blocks of pages that records fill.
_BLOCKS = re.compile(r'<!-- \w+(?: of \S+)? -->\n(.*?)<!-- end(?: of \w+)? -->', re.DOTALL)


def draws() -> dict[str, str]:
  """SHA-256 of every bit of the tokens, task weights and initial parameters of the first trial of each small panel."""
  import jax
  import numpy as np

  # As `main` sets it, before anything is drawn.
  jax.config.update('jax_threefry_partitionable', True)
  sys.path.insert(0, str(ROOT))
  from experiments.pipeline import trial as trial_lib
  from experiments.settings import config as config_lib
  from experiments.studies import registry

  found = {}
  for name in ('prompt_vs_head', 'memory_vs_vanilla', 'memory_cells'):
    settings = registry.from_config(config_lib.shipped(name)['get_config']('smoke'))
    point, number = settings.draws()[-1]
    trial = trial_lib.Trial(settings, point, number, pathlib.Path('runs'))
    distribution, downstream = trial_lib.draw(trial)
    params = jax.jit(settings.bert_module().init)(trial.keys().pretraining, np.zeros((1, 1), np.int32))
    drawn = {
      'distribution': distribution,
      'tokens': [downstream.inputs, downstream.documents],
      'task weights': [task.task_weights for task in downstream.tasks],
      'labels': [task.labels for task in downstream.tasks],
      'initial parameters': params,
    }
    for what, tree in drawn.items():
      digest = hashlib.sha256()
      for leaf in jax.tree.leaves(tree):
        digest.update(np.asarray(leaf).tobytes())
      found[f'{name} {what}'] = digest.hexdigest()
  return found


def tables() -> list[str]:
  """The rows of the tables of all pages, and the plain ones in blocks that records fill, once each."""
  rows: list[str] = []
  for page in (ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md'))):
    text = page.read_text()
    rows += [line for line in text.splitlines() if line.startswith('|')]
    for block in _BLOCKS.findall(text):
      for fenced in block.split('```')[1::2]:
        rows += fenced.splitlines()[1:]
  return list(dict.fromkeys(rows))


def _cells(row: str) -> tuple[str, ...]:
  """The cells of a row of a Markdown or a plain table, without those that are empty."""
  cells = re.split(r'(?<!\\)\|', row) if row.startswith('|') else re.split(r'\s{2,}', row)
  return tuple(filter(None, (cell.replace('\\', '').strip() for cell in cells)))


def records(experiment: str) -> tuple[list[dict], dict]:
  """The records of a run at scale `smoke`, and the environment that they came from."""
  with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, '-m', 'experiments.main', f'--config={experiment}:smoke', f'--workdir={folder}']
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
      sys.exit(f'{experiment}:smoke ended with exit code {done.returncode}:\n{done.stderr}')
    found = _rows(pathlib.Path(folder, 'results.jsonl'))
    environment = pathlib.Path(folder, 'environments', f'{found[0]["environment"]}.json')
    return found, json.loads(environment.read_text())


def _rows(path: pathlib.Path) -> list[dict]:
  return [json.loads(line) for line in path.read_text().splitlines()]


def differences(pinned: list[dict], found: list[dict], relative: float) -> list[str]:
  """The fields that differ, each with how often and its first two values."""
  if len(pinned) != len(found):
    return [f'{len(found)} records in place of {len(pinned)}']
  wrong: dict[str, list[tuple]] = {}
  for one, other in zip(pinned, found):
    for name in {**one, **other}.keys() - _NOT_COMPARED:
      values = one.get(name, 'no field'), other.get(name, 'no field')
      if not _same(*values, relative):
        wrong.setdefault(name, []).append(values)
  return [f'{name} in {len(pairs)} records, first {pairs[0][0]} -> {pairs[0][1]}' for name, pairs in wrong.items()]


def _same(one, other, relative: float) -> bool:
  if isinstance(one, list) and isinstance(other, list) and relative:
    return len(one) == len(other) and all(_same(*pair, relative) for pair in zip(one, other))
  if isinstance(one, dict) and isinstance(other, dict) and relative:
    return one.keys() == other.keys() and all(_same(one[name], other[name], relative) for name in one)
  if isinstance(one, float) and isinstance(other, float) and relative:
    return math.isclose(one, other, rel_tol=relative, abs_tol=_ABSOLUTE)
  return json.dumps(one) == json.dumps(other)


def main(names: list[str]) -> int:
  """Prints a line for each part of the pin; the exit code."""
  failures = 0
  for name in names or ('draws', 'tables', *EXPERIMENTS):
    how = 'every bit'
    if name == 'draws':
      pinned, now = json.loads((PIN / 'draws.json').read_text()), draws()
      wrong = [what for what in {**pinned, **now} if pinned.get(what) != now.get(what)]
    elif name == 'tables':
      now = set(map(_cells, tables()))
      pinned = json.loads((PIN / 'tables.json').read_text())
      # A heading or a title may be worded anew; a row of a table has three cells with a number.
      pinned = [row.replace('not told apart', 'not significant') for row in pinned]
      wrong = [row for row in pinned if re.search(r'\d', row) and len(_cells(row)) > 2 and _cells(row) not in now]
      how = 'the cells of every row'
    else:
      now, environment = records(name)
      made = json.loads((PIN / 'environment.json').read_text())
      is_here = all(made[field] == environment[field] for field in made)
      how = how if is_here else f'another environment than the pin, numbers within {RELATIVE:g}'
      wrong = differences(_rows(PIN / f'{name}.jsonl'), now, 0.0 if is_here else RELATIVE)
    failures += bool(wrong)
    print(f'{name}: {"DIFFERS: " + "; ".join(wrong[:10]) if wrong else f"as pinned ({how})"}', flush=True)
  return int(failures > 0)


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
