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
| C | configurations of the memory, M^N, 1 if there is none; in a head, classes | |
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

import lazy_loader

# The metadata of the package take it from here; a clone that is not installed has none to ask.
__version__ = '0.4.0'

# The public names are those of __init__.pyi; a module is imported when one of its names is first used.
_attached, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
  try:
    return _attached(name)
  except AttributeError as error:
    # Tools ask for private names.
    if name.startswith('_'):
      raise
    from hmm_jax._support.display import NoSuchName

    raise NoSuchName(*error.args, name=name) from None
