"""One coarse estimate of the memory and the disk that a grid takes, checked before anything is allocated or trained.

Memory: the process with JAX and its compiled programs, parameters with their copies, the corpus, a batch of activations
of pretraining and of tuning, exact inference on the largest block, what is measured, and features of all inputs. Parts
are added as if they lived at once, and XLA's own buffers are unknown, so the estimate is good to a factor of two.
On two CPU cores prompt_vs_head:smoke peaked at 1.05 GB, and with 1,000,000 documents of 512 tokens at 3.2 GB; estimated
are 1.0 and 3.6 GB.

Disk: the checkpoints that unfinished pretrainings lack. An object store does not report its free space, so it is not
checked.
"""

from collections.abc import Sequence
import operator

import jax

from experiments.pipeline import cost
from experiments.pipeline.trial import Trial
from experiments.records import checkpoints
from experiments.runtime import machine, storage
from experiments.settings.fields import require, SettingsError
from experiments.settings.grid import Settings
from experiments.settings.methods import METHODS, OF_SEQUENCE
from hmm_jax.sampling import token_dtype

# Measured: the peak of prompt_vs_head:smoke on a CPU, whose arrays are next to nothing.
_PROCESS = 1e9
# [B, T, E] float64: likelihood rows, and filtered, smoothed and leave-one-out probabilities.
_POSTERIORS = 4 * 8
# Of each parameter in float32: itself, two moments, and its gradient.
_COPIES = 4 * 4
# Of each entry of the permutation matrices that are mixed into a transition matrix, while it is drawn.
_PERMUTATION = 9
# Bytes of Orbax's metadata of a step with the rest of its files' blocks, which take 0.16 MB; and of all other files.
_STEP, _REST = 2**18, 2**20


def memory_bytes(s: Settings) -> dict[str, float]:
  """Bytes of memory by the setting that most drives them, for the largest distribution of the grid."""
  d, m, corpus, tokens, grid = s.downstream, s.measure, s.corpus, s.hmm.num_tokens, s.grid()
  names = set().union(*grid.values())
  methods, seen = [METHODS[name] for name in names], d.seen_length(0)
  # Gradients of a prompt or of the model itself pass through the model; a head alone is trained on its features.
  through_model = [name for name in names if METHODS[name].prompt or METHODS[name].finetunes]
  batches = [s.tasks_at_a_time * s.num_starts(name) * s.tuning(name).batch_size for name in through_model]
  states, batch = max(point.joint_states for point in grid), max(batches, default=0)
  chunks, inputs = m.num_chunks * corpus.chunk_length, d.num_train + d.num_validation + d.num_test
  features = tokens * (seen if any(method.reads in OF_SEQUENCE for method in methods) else 1)
  permutations = max(s.num_states) ** 2 * (s.hmm.num_permutations or max(s.num_states)) * (not s.distribution)
  found = {
    'scale': _PROCESS,
    'num_states': _POSTERIORS * states * max(chunks, max(batch, m.batch_size) * seen) + _PERMUTATION * permutations,
    'measure.num_documents': 3 * 8 * tokens * (chunks + m.num_documents * seen**2),
    'downstream.num_train': 8 * inputs * (max(features, states) + d.length + s.tasks_per_trial),
  }
  if s.has_bert:
    data, fsdp, tensor = s.mesh.sizes(jax.device_count())
    finetuned = s.tasks_at_a_time * any(method.finetunes for method in methods)
    found |= {
      # Whatever the mesh, each device has the parameters once whole for a step and for tuning.
      'bert.width': cost.num_params(s) * (4 + _COPIES / (fsdp * tensor) + _COPIES * finetuned),
      'corpus.num_documents': 5 * token_dtype(tokens).itemsize * corpus.num_documents * corpus.document_length,
      'pretrain.batch_size': cost.activation_bytes(s, s.pretrain.batch_size / (data * fsdp), corpus.chunk_length),
      'tasks_at_a_time': 2 * cost.activation_bytes(s, batch, seen),
    }
  return found


def check_memory(s: Settings) -> None:
  """Raise SettingsError where memory is too small, naming the field that needs most of it."""
  there, found = machine.available_memory(), memory_bytes(s)
  total, field = sum(found.values()), max(found, key=found.__getitem__)
  # A share, if several runs were started together on this host.
  room = f'{_gigabytes(there or 0)} of memory available'
  valid = f'less: it needs about {_gigabytes(found[field])}, the whole run {_gigabytes(total)}, with {room}'
  require(there is None or total <= there, field, operator.attrgetter(field)(s), valid)


def _gigabytes(size: float) -> str:
  return f'{size / 1e9:,.1f} GB'


def check_disk(trials: Sequence[Trial]) -> None:
  """Raise SettingsError where the disk lacks room for the checkpoints that are still to be written."""
  models = {trial.pretrained_directory: trial for trial in trials if trial.absent() and trial.settings.has_bert}
  total = _REST
  for directory, trial in models.items():
    s, there = trial.settings, checkpoints.steps(directory / checkpoints.NAME)
    if s.pretrain.num_steps not in there:
      # The next one is written before one is removed, and several runs may do so at once.
      total += (checkpoints.KEPT + 1 - len(there)) * (cost.state_bytes(s) + _STEP)
  path = next(iter(models), trials[0].directory).parent
  free = storage.free_bytes(path)
  if free is not None and free < total:
    raise SettingsError(f'{path} has {free:,} bytes free; valid is at least {total:,} for the checkpoints')
