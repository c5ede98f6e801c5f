"""A model's activations by layer, its attention, and its predictions with activations replaced."""

import collections
from collections.abc import Iterable, Mapping, Sequence
import functools
from typing import Any

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import arguments, float64
from hmm_jax._support.blocks import even_size, in_blocks
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.labelled import beliefs, Process
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.models.model import ExactModel, joined, MaskedLM, Positions

# Most tokens that the device reads at a time.
_TOKENS = 2**14


@arguments.converted
def activations(
  model: MaskedLM,
  params: Any,
  tokens: Array | np.ndarray,
  layers: Sequence[str] | None = None,
  *,
  prompt: Array | np.ndarray | None = None,
) -> dict[str, np.ndarray]:
  """The activations of a model by name, each [..., L, D] at every position of tokens [..., T]; L = P + T.

  A BERT has 'embeddings', then 'layer_1' to the last: its residual stream. It is a post-LN encoder (Devlin et al.
  2019): x <- LN(x + attention(x)), x <- LN(x + FFN(x)), so that each is normalised and equals Hugging Face's
  `hidden_states` in their order. On request it has 'attention_1' to the last, [..., heads, L, L]. The exact model has
  'beliefs', P[H_i | X_{-i}]. Your own has those of its `predict_visiting`, by default 'representation'.

  Args:
    model: any `MaskedLM`.
    params: its parameters.
    tokens: [MASK] is V.
    layers: the names to return, or 'layer' or 'attention' for all whose names begin so; None for all but attention.
    prompt: [P, E], rows before the embeddings of each text.

  Returns:
    Numpy arrays, float64 for a float64 distribution. The device computes them in blocks of texts.

  Raises:
    ValueError: a token or a name does not exist, or shapes do not fit.

  >>> import jax, hmm_jax as hj
  >>> hmm, tokens = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), np.array([[4, 1, 2], [0, 4, 2]])
  >>> {name: values.shape for name, values in activations(hj.ExactModel(num_tokens=4), hmm, tokens).items()}
  {'beliefs': (2, 3, 3)}
  """
  return _by_text(model, params, tokens, prompt, layers)


@arguments.converted
def save_activations(
  file: Any,
  model: MaskedLM,
  params: Any,
  tokens: Array | np.ndarray,
  distribution: HMM | MemoryHMM | Process,
  layers: Sequence[str] | None = None,
) -> None:
  """Write the activations of a model, and the exact beliefs beside them, to one .npz that numpy alone reads.

  Its arrays are 'tokens' [..., T], the `activations` by name, each [..., T, D], and 'beliefs' [..., T, H], of the
  exact model that sees what the model sees: P[H_i | X_{-i}], of a causal one P[H_i | X_{1..i-1}]. With a memory H_i is
  the joint state. Of a `Process` they are `hj.beliefs` [..., T, S], and 'transition_matrices' T [V, S, S] stand beside
  them.

  Args:
    file: a path, to which numpy adds '.npz' if it lacks it, or an open binary file; an existing file is replaced.
    model: any `MaskedLM`.
    params: its parameters.
    tokens: [MASK] is V.
    distribution: of the beliefs.
    layers: names as in `activations`.

  Raises:
    ValueError: as `activations` does, the vocabularies differ, or other activations have the name of tokens or beliefs;
      nothing is written then.
    OSError: the file cannot be written.

  >>> import io, jax, hmm_jax as hj
  >>> hmm, file = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), io.BytesIO()
  >>> save_activations(file, hj.ExactModel(num_tokens=4), hmm, np.array([4, 1, 2]), hmm)
  >>> arrays = np.load(io.BytesIO(file.getvalue()), allow_pickle=False)
  >>> {name: values.shape for name, values in arrays.items()}
  {'tokens': (3,), 'beliefs': (3, 3)}
  """
  own = _by_text(model, params, tokens, None, layers)
  exact = _by_text(ExactModel(model.num_tokens, model.causal), distribution, tokens, None, None)
  if isinstance(distribution, Process):
    exact = {
      'beliefs': beliefs(distribution, tokens, causal=model.causal),
      'transition_matrices': np.asarray(distribution.transition_matrices),
    }
  texts = {'tokens': np.asarray(tokens)}
  # Tokens stand first, whatever names the model has.
  arrays: dict[str, Any] = {**texts, **own, **exact, **texts}
  for name, values in own.items():
    if not np.array_equal(values, arrays[name]):
      raise ValueError(
        f'the activation {name!r} of the model is not that of the distribution; valid are other layers, or none'
      )
    if values.dtype.kind == 'V':
      # numpy would read bfloat16 back as raw bytes.
      arrays[name] = values.astype(np.float32)
  np.savez(file, **arrays)


@arguments.converted
def attention_patterns(model: MaskedLM, params: Any, tokens: Array | np.ndarray) -> np.ndarray:
  """Attention weights [..., layers, heads, T, T] of tokens [..., T]: the last axis is attended to and sums to 1.

  Numpy, computed in blocks of texts. Raises ValueError for a token that does not exist and a model without attention.

  >>> import jax, hmm_jax as hj
  >>> bert = hj.Bert(num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=8, max_positions=5, dropout_rate=0.0)
  >>> params = bert.init(jax.random.key(0), jnp.zeros((1, 5), jnp.int32))['params']
  >>> attention_patterns(hj.BertModel(bert), params, np.array([4, 1, 2, 3, 0])).shape
  (1, 2, 5, 5)
  """
  found = _by_text(model, params, tokens, None, ['attention'])
  return np.stack(list(found.values()), axis=-4)


@arguments.converted
def with_activations(
  model: MaskedLM,
  params: Any,
  tokens: Array | np.ndarray,
  replace: Mapping[str, Any],
  *,
  positions: Positions = None,
  prompt: Array | np.ndarray | None = None,
) -> Array:
  """Predictions [..., Q, V] at `positions` of tokens [..., T], with activations replaced (activation patching).

  All texts are computed at once. On the exact model 'beliefs' b are replaced, and the prediction is b @ the emission
  matrix: what a model whose belief is b should predict.

  Args:
    model: any `MaskedLM`; one without its own `predict_visiting` refuses a replacement.
    params: its parameters.
    tokens: [MASK] is V.
    replace: by names as in `activations`, an array whose shape broadcasts to the activation's [..., L, D], or a
      function from the activation to one of that shape. A function is traced; pass the same object to compile once.
    positions: those to read, of L; None for all.
    prompt: [P, E], rows before the embeddings of each text.

  Raises:
    ValueError: a token, a position or a name does not exist, or shapes do not fit.

  Source: Vig et al. 2020, "Investigating gender bias in language models using causal mediation analysis".

  >>> import jax, hmm_jax as hj
  >>> hmm, model = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), hj.ExactModel(num_tokens=4)
  >>> swapped = with_activations(model, hmm, np.array([4, 1, 2]), {'beliefs': np.eye(3)[1]}, positions=np.array([0]))
  >>> bool(np.allclose(swapped[0], hmm.emission_matrix[1]))
  True
  """
  _check(model, params, tokens, prompt)
  arguments.check_ids('positions', positions, tokens.shape[-1] + (0 if prompt is None else len(prompt)))
  if not isinstance(replace, Mapping):
    raise ValueError(f'replace is a {type(replace).__name__}; valid is a mapping from names of activations')
  functions = tuple((name, new) for name, new in replace.items() if callable(new))
  arrays = {name: arguments.array(f'replace[{name!r}]', new) for name, new in replace.items() if not callable(new)}
  return _visited(model, params, tokens, prompt, (), arrays, positions, functions)[0]


# Its program of many results compiles sooner by `jax.jit`.
@functools.partial(float64.jit, by=jax.jit, returns_float64=True, static_argnames=('model', 'layers', 'functions'))
def _visited(
  model: MaskedLM,
  params: Any,
  tokens: Any,
  prompt: Any,
  layers: Sequence[str] | None,
  arrays: Any,
  positions: Positions,
  functions: Any,
) -> tuple[Array, dict[str, Array]]:
  """Predictions, and the activations of `layers` as they were before they were replaced."""
  found, replace = {}, arrays | dict(functions)

  def visit(name: str, activation: Array) -> Array:
    found[name] = activation
    if name not in replace:
      return activation
    new = replace[name](activation) if callable(replace[name]) else replace[name]
    new = arguments.array(f'replace[{name!r}]', new)
    if new is activation:
      return activation
    try:
      return jnp.broadcast_to(new, activation.shape).astype(activation.dtype)
    except ValueError:
      raise ValueError(f'replace[{name!r}] has shape {jnp.shape(new)}; valid is {activation.shape}')

  embeddings = model.embed(params, tokens)
  if prompt is not None:
    embeddings = joined([prompt, embeddings])
  predictions = model.predict_visiting(params, embeddings, visit, positions)
  _check_names('replace', replace, found)
  return predictions, _chosen(found, layers)


def _chosen(found: dict[str, Array], layers: Sequence[str] | None) -> dict[str, Array]:
  """The activations of these names or kinds, such as 'layer' for 'layer_1'; all but attention if None."""
  kinds = {name: name.split('_')[0] for name in found}
  if layers is None:
    names = [name for name in found if kinds[name] != 'attention']
  else:
    _check_names('layers', layers, [*found, *kinds.values()])
    names = [name for name in found if name in layers or kinds[name] in layers]
  # JAX would sort the names of a dict.
  return collections.OrderedDict((name, found[name]) for name in names)


def _check_names(argument: str, names: Iterable[str], valid: Iterable[str]) -> None:
  for name in names:
    if name not in valid:
      raise ValueError(f'{argument} has {name!r}; valid are {", ".join(map(repr, dict.fromkeys(valid)))}')


def _check(model: MaskedLM, params: Any, tokens: Any, prompt: Any) -> None:
  arguments.check_texts(model, params, tokens)
  if prompt is not None:
    arguments.check_shape('prompt', prompt, 'P', 'E')


def _by_text(
  model: MaskedLM, params: Any, tokens: Any, prompt: Any, layers: Sequence[str] | None
) -> dict[str, np.ndarray]:
  """The activations of tokens [..., T], computed in blocks of texts."""
  _check(model, params, tokens, prompt)
  arguments.require(not isinstance(layers, str), 'layers', layers, 'a list of names')
  texts, names = np.asarray(tokens).reshape(-1, tokens.shape[-1]), None if layers is None else tuple(layers)
  of_block = lambda block: _visited(model, params, block, prompt, names, {}, None, ())[1]
  size = even_size(*texts.shape, _TOKENS)
  # One of few sizes, so that most calls share a program; products of fewer rows may round differently.
  size = -(-size // 16) * 16 if size >= 8 else size
  found = in_blocks(of_block, texts, size)
  return {name: x.reshape(*tokens.shape[:-1], *x.shape[1:]) for name, x in found.items()}
