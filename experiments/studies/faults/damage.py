"""Files of a finished or half finished run that are damaged: a flipped bit, half of it, none of it, or one too many."""

from collections.abc import Callable
import pathlib
import re
import shutil
from typing import NamedTuple

import jax

from experiments.runtime.progress import Reporter
from experiments.studies.faults import bench as bench_lib
from experiments.studies.faults.bench import Bench, Row
from experiments.studies.faults.settings import FaultsSettings

_OF_JSON = ('.json', '.jsonl')


class Damage(NamedTuple):
  """What is done to which files, by their paths in a workdir; whose words have to be said; whether it is set aside."""

  fault: str
  paths: tuple[str, ...]
  how: str
  said: str
  is_kept: bool


def run(settings: FaultsSettings, key: jax.Array, reporter: Reporter) -> list[Row]:
  """A row for each damage, of all that there are at most `num_damaged`, drawn without replacement."""
  with bench_lib.opened(settings) as bench:
    found = [*checkpoint_damages(bench.reference), *trial_damages(bench.reference)]
    order = jax.random.permutation(key, len(found))[: settings.num_damaged].tolist()
    chosen, rows, workdirs = [found[index] for index in sorted(order)], list[Row](), bench.workdirs()
    with reporter.track('damages', len(chosen)) as advance:
      for damage, workdir in zip(chosen, workdirs):
        rows.append(tried(bench, damage, workdir))
        advance(len(rows), damage.fault)
    if settings.mutants:
      flipped = next(
        one for one in checkpoint_damages(bench.reference) if one.how == 'flipped' and '/d/' in one.paths[0]
      )
      rows.append(tried(bench, flipped, next(workdirs), without='digests'))
  return rows


def tried(bench: Bench, damage: Damage, workdir: pathlib.Path, without: str = '') -> Row:
  """Damages a copy of the reference, and runs the same command again."""
  shutil.copytree(bench.reference, workdir)
  if damage.paths[0].startswith('pretrained/'):
    # As if it had been killed where the first trial is to be tuned, which reads the pretrained model.
    shutil.rmtree(workdir / 'trials')
    for name in ('results.jsonl', 'manifest.json'):
      (workdir / name).unlink()
  for path in damage.paths:
    HOW[damage.how](workdir / path)
  before = {path: (workdir / path).read_bytes() for path in damage.paths if (workdir / path).is_file()}
  ended, lost = bench.again(workdir, changed=[without])
  if not lost and damage.said not in ended.said:
    lost = f'{damage.said} is not named'
  if not lost and damage.is_kept:
    lost = _not_kept(workdir, before)
  return bench_lib.row(damage.fault, lost, without=without, files=list(damage.paths), how=damage.how)


def _not_kept(workdir: pathlib.Path, before: dict[str, bytes]) -> str:
  """Which damaged file is nowhere any longer, in words."""
  contents = {path.read_bytes() for path in workdir.rglob('*') if path.is_file()}
  return next((f'{path} was not kept' for path, content in before.items() if content not in contents), '')


def checkpoint_damages(workdir: pathlib.Path) -> list[Damage]:
  """Of each kind of file of the newest step, in every way, and of all steps at once."""
  found = []
  (directory, *_) = sorted(workdir.glob('pretrained/*/checkpoints'))
  steps = sorted((path for path in directory.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
  newest = steps[-1]
  for path in sorted(path for path in newest.rglob('*') if path.is_file()):
    where, kind = str(path.relative_to(workdir)), _kind(path.relative_to(newest))
    for how in ('flipped', 'half', 'missing'):
      if path.stat().st_size or how == 'missing':
        fault = f'newest checkpoint: {_WORDS[how]}'
        found.append(Damage(fault, (where,), how, f'checkpoints/{newest.name}', how != 'missing'))
        if kind == 'data':
          found.append(_damage_to_all_steps(workdir, steps, how))
  extra = str((newest / 'extra').relative_to(workdir))
  found.append(Damage('newest checkpoint: a file too many', (extra,), 'new', f'checkpoints/{newest.name}', True))
  return list(dict.fromkeys(found))


def _damage_to_all_steps(workdir: pathlib.Path, steps: list[pathlib.Path], how: str) -> Damage:
  """The same damage to the largest file of every step."""
  in_order = [sorted((path.stat().st_size, path) for path in step.rglob('*') if path.is_file()) for step in steps]
  largest = [found[-1][1] for found in in_order]
  paths = tuple(str(path.relative_to(workdir)) for path in largest)
  return Damage(f'all checkpoints: {_WORDS[how]}', paths, how, 'checkpoints/', how != 'missing')


def _kind(path: pathlib.Path) -> str:
  return 'data' if 'd' in path.parts else path.name


def trial_damages(workdir: pathlib.Path) -> list[Damage]:
  """Of records, tuned arrays and what stands beside them, in every way."""
  found = []
  for name, pattern, is_read in (
    ('records of a trial', 'trials/*/records.jsonl', True),
    ('tuned arrays', 'trials/*/tuned/*.npz', True),
    ('environment of a trial', 'trials/*/environment.jsonl', True),
    ('timing of a trial', 'trials/*/timing.jsonl', False),
    ('merged records', 'results.jsonl', True),
    ('settings of merged records', 'config.json', True),
    ('metrics of a pretraining', 'pretrained/*/metrics.jsonl', False),
    ('environment of a pretraining', 'pretrained/*/environment.jsonl', False),
  ):
    path, *_ = sorted(workdir.glob(pattern))
    where = str(path.relative_to(workdir))
    for how in ('flipped', 'flipped at first', 'flipped in a name', 'half', 'missing'):
      if 'flipped ' in how and path.suffix not in _OF_JSON:
        continue
      # One file of several that are read together is missed.
      is_there = how != 'missing'
      said = path.name if is_read and (is_there or path.parent == workdir) else ''
      found.append(Damage(f'{name}: {_WORDS[how]}', (where,), how, said, is_read and is_there))
  return found


def _flip(path: pathlib.Path) -> None:
  """The lowest bit of the last digit, so that JSON stays JSON; of the byte in the middle where there is none."""
  content = path.read_bytes()
  digits = _places(content, '[0-9]') if path.suffix in _OF_JSON else []
  _flip_at(path, digits[-1] if digits else len(content) // 2)


def _flip_first(path: pathlib.Path) -> None:
  """The lowest bit of the first number's last digit, which may be that of a version."""
  _flip_at(path, _places(path.read_bytes(), '[0-9](?![0-9])')[0])


def _flip_name(path: pathlib.Path) -> None:
  """The lowest bit of the first letter, which is that of a field's name."""
  _flip_at(path, _places(path.read_bytes(), '[a-z]')[0])


def _places(content: bytes, pattern: str) -> list[int]:
  return [found.start() for found in re.finditer(pattern.encode(), content)]


def _flip_at(path: pathlib.Path, place: int) -> None:
  content = bytearray(path.read_bytes())
  content[place] ^= 1
  path.write_bytes(bytes(content))


def _halve(path: pathlib.Path) -> None:
  content = path.read_bytes()
  path.write_bytes(content[: len(content) // 2])


def _create(path: pathlib.Path) -> None:
  path.write_bytes(b'not of this checkpoint')


HOW: dict[str, Callable[[pathlib.Path], None]] = {
  'flipped': _flip,
  'flipped at first': _flip_first,
  'flipped in a name': _flip_name,
  'half': _halve,
  'missing': pathlib.Path.unlink,
  'new': _create,
}
_WORDS = {
  **dict.fromkeys(('flipped', 'flipped at first', 'flipped in a name'), 'a flipped bit'),
  'half': 'cut to half',
  'missing': 'missing',
}
