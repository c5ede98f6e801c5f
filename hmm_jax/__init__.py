"""Exact posteriors, pretraining and tuning for text from hidden Markov models (Wei, Xie and Ma, NeurIPS 2021).

Axes in names, for example `likelihoods_TxH`:

| letter | axis | the paper |
| --- | --- | --- |
| B | batch | |
| S | sequences of a corpus: documents, or chunks of them | |
| T | time (positions) | T or t |
| V | tokens of the vocabulary, [MASK] not counted | script X |
| H | hidden states | script H |
| M | values of a memory cell | script M |
| N | memory cells | N |
| C | configurations of the memory, M^N, 1 where there is none; in a head, classes | |
| E | joint states, C H; what a model's `embed` returns: joint states for the exact model, D for BERT | |
| D | width of BERT | |
| P | prompt length | |
| L | positions of prompt and text, P + T | |
| F | features that a head reads: V, or E of a probe | |
| Q | positions that are read; in an attention head, the size of its keys | |
| n | inputs of a task | |
| K | tasks: draws of `task_weights` tuned side by side | |

| here | the paper |
| --- | --- |
| `initial_probs` | P[H_1], the first emitting state |
| `transition_matrix` | A transposed: rows sum to 1 |
| `emission_matrix` | W transposed: rows sum to 1 |
| `memory_probs` | P[M_1, ..., M_N] |
| `cell_index` | J, the cell that a hidden state reads |
| `conditional_token_probs` | G, G-bar |
| `task_weights` | mu |
| `prompt` | u |
"""

import importlib
import importlib.metadata
import pkgutil
from typing import Any, TYPE_CHECKING

from hmm_jax.hmm import (
  conditional_token_probs,
  evidence_likelihoods,
  from_dynamax,
  from_hmmlearn,
  HMM,
  random_hmm,
  to_dynamax,
  to_hmmlearn,
  token_likelihoods,
)
from hmm_jax.inference import forward_backward, last_filtered_probs, Posterior
from hmm_jax.memory_hmm import (
  cell_posterior,
  independent_cells,
  memory_forward_backward,
  MemoryHMM,
  MemoryPosterior,
  random_memory_hmm,
  to_hmm,
)
from hmm_jax.model import at_positions, ExactModel, MaskedLM, PromptSpace, token_probs
from hmm_jax.sampling import sample, sample_corpus
from hmm_jax.viterbi import most_likely_states

if TYPE_CHECKING:
  from hmm_jax.bert import Bert, BertModel
  from hmm_jax.heads import Attention, Linear
  from hmm_jax.tuning import Schedule
  from hmm_jax.workflow import DownstreamTask, draw_task, pretrain, tune, Tuned

# Names that need Flax or Optax, and their modules, which are imported where one is first used. So are all submodules.
_LAZY = {
  **dict.fromkeys(('Bert', 'BertModel'), 'bert'),
  **dict.fromkeys(('Attention', 'Linear'), 'heads'),
  'Schedule': 'tuning',
  **dict.fromkeys(('draw_task', 'DownstreamTask', 'pretrain', 'tune', 'Tuned'), 'workflow'),
}
_SUBMODULES = {found.name for found in pkgutil.iter_modules(__path__)}

__all__ = [
  'Attention',
  'Bert',
  'BertModel',
  'DownstreamTask',
  'ExactModel',
  'HMM',
  'Linear',
  'MaskedLM',
  'MemoryHMM',
  'MemoryPosterior',
  'Posterior',
  'PromptSpace',
  'Schedule',
  'Tuned',
  'at_positions',
  'cell_posterior',
  'conditional_token_probs',
  'draw_task',
  'evidence_likelihoods',
  'forward_backward',
  'from_dynamax',
  'from_hmmlearn',
  'independent_cells',
  'last_filtered_probs',
  'memory_forward_backward',
  'most_likely_states',
  'pretrain',
  'random_hmm',
  'random_memory_hmm',
  'sample',
  'sample_corpus',
  'to_dynamax',
  'to_hmm',
  'to_hmmlearn',
  'token_likelihoods',
  'token_probs',
  'tune',
]

if not TYPE_CHECKING:

  def __getattr__(name: str) -> Any:
    """Import a lazy name at its first use; `__version__` is that of the installed package."""
    if name == '__version__':
      return importlib.metadata.version('hmm-jax')
    if name in _LAZY:
      return getattr(importlib.import_module(f'hmm_jax.{_LAZY[name]}'), name)
    if name in _SUBMODULES:
      return importlib.import_module(f'hmm_jax.{name}')
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')

  def __dir__() -> list[str]:
    return [*__all__, *_SUBMODULES, '__version__']
