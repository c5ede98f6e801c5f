"""What a run takes of a disk, estimated from its settings before anything is trained.

Counted are, of each pretraining that is not finished, the checkpoints that are kept; of as many as run at once on this
machine the one more that is being written beside them; of each trial that is not finished, its tuned arrays and
records; and what a run writes besides: tables, figures, logs. It is an estimate, with what a file system takes for a
file: what is there already of a trial counts as if it were not.
"""

from collections.abc import Sequence
import pathlib

from experiments.pipeline import cost
from experiments.pipeline.trial import Trial
from experiments.records import checkpoints
from experiments.runtime import disk, local_runs
from experiments.settings.methods import METHODS, OF_SEQUENCE

# Tables, figures and logs.
_REST = 2**20
# Of a step, whatever its size: Orbax's metadata and what its files leave of their blocks, measured as 0.16 MB.
_METADATA = 2**18
# The block of most file systems, of which a small file leaves most.
_BLOCK = 2**12


def needed(trials: Sequence[Trial], num_runs: int = 1) -> dict[pathlib.Path, int]:
  """Bytes that what is missing of the trials takes, in so many runs at once, by the directories that it goes to."""
  found: dict[pathlib.Path, int] = {}
  add = lambda path, size: found.update({path: found.get(path, 0) + size})
  left = []
  for trial in trials:
    absent = trial.absent()
    if absent:
      left.append(trial)
      add(trial.workdir, sum(_record_bytes(trial, model, method) for _, model, method in absent))
  models = {trial.pretrained_directory: trial for trial in left if 'bert' in trial.settings.models}
  sizes: dict[pathlib.Path, list[int]] = {}
  for directory, trial in models.items():
    there = checkpoints.steps(directory / checkpoints.NAME)
    if trial.settings.pretrain.num_steps in there:
      continue
    size, where = checkpoint_bytes(trial), directory.parent
    add(where, size * max(checkpoints.KEPT - len(there), 0))
    sizes.setdefault(where, []).append(size)
  for where, of_models in sizes.items():
    add(where, sum(sorted(of_models, reverse=True)[:num_runs]))
  for trial in left[:1]:
    add(trial.workdir, _REST)
  return found


def checkpoint_bytes(trial: Trial) -> int:
  """Of one step of the pretraining of a trial, on disk."""
  return cost.state_bytes(trial.settings) + _METADATA


def _record_bytes(trial: Trial, model: str, method: str) -> int:
  """A record with its tuned arrays, in float64 where it may be."""
  s, kind, point = trial.settings, METHODS[method], trial.point
  width = s.bert.width if model == 'bert' else point.joint_states
  length = s.seen_length(method) + s.prompt_length(method)
  entries = s.downstream.num_classes * (max(width, s.hmm.num_tokens) + 1) + s.prompt_length(method) * width
  if kind.reads in OF_SEQUENCE:
    key, value = s.attention.key_size or point.num_states + 1, s.attention.value_size or point.joint_states
    entries += (length + 2 * s.hmm.num_tokens) * (key + value) + s.downstream.num_classes * value
  if kind.finetunes:
    entries += cost.num_params(s)
  return 8 * entries + 2 * _BLOCK


def check(trials: Sequence[Trial]) -> None:
  """Raises SettingsError where a file system has less room than what is missing of the trials takes of it."""
  disk.check(needed(trials, local_runs.num_runs()))
