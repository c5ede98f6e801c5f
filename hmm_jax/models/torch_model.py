"""A frozen torch module as a `MaskedLM`: JAX calls it, and its gradient in the embeddings, through callbacks."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, TYPE_CHECKING

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax.models.model import at_positions, MaskedLM, Positions

if TYPE_CHECKING:
  import torch


def from_torch(
  module: Any,
  num_tokens: int,
  embed: 'Callable[[torch.Tensor], torch.Tensor] | None' = None,
  predict: 'Callable[[torch.Tensor], torch.Tensor] | None' = None,
) -> 'TorchModel':
  """A torch module, frozen and in evaluation mode, as the model that heads, prompts and probes are tuned on.

  Its parameters stay in torch, so that JAX's are `()`: `hj.tune(model, (), hmm, task)`. The functions receive tensors
  on the CPU, embeddings in float32, and results come back in float32; every call crosses from JAX to torch and back.

  Args:
    module: any; without `embed` and `predict` a masked language model of Hugging Face's transformers.
    num_tokens: V. Ids 0 to V - 1 are the vocabulary, and [MASK] is id V.
    embed: from ids [B, T] to embeddings [B, T, E]; the module's `get_input_embeddings()` if None.
    predict: from embeddings [B, T, E] to probabilities [B, T, V]; if None the softmax of the first V of the module's
      `logits` for `inputs_embeds`.

  Raises:
    ImportError: torch is not installed.
    ValueError: the module cannot embed [MASK], its embeddings are of half precision, or `embed` or `predict` returns
      another shape for a text of one token.

  Example, with functions of its own in place of a masked language model:

    >>> import pytest
    >>> torch = pytest.importorskip('torch')
    >>> module = torch.nn.Linear(3, 3)
    >>> embed, predict = lambda ids: torch.eye(4)[ids][..., :3], lambda x: torch.full(x.shape, 0.25) + 0 * x
    >>> model = from_torch(module, 3, embed, predict)
    >>> print(model.predict((), model.embed((), jnp.array([3, 1]))))
    [[0.25 0.25 0.25]
     [0.25 0.25 0.25]]
  """
  import torch

  module.eval().requires_grad_(False)
  probs = predict or (lambda embeddings: module(inputs_embeds=embeddings).logits[..., :num_tokens].softmax(-1))
  try:
    words = embed or module.get_input_embeddings()
    embeddings = words(torch.full((1, 1), num_tokens))
  except Exception as error:  # torch raises anything.
    reason = f'{type(error).__name__}: {error}'
    raise ValueError(f'module does not embed [MASK], id {num_tokens} ({reason}); valid is one that does, or `embed`')
  if embeddings.dtype not in (torch.float32, torch.float64):
    raise ValueError(f'module computes in {embeddings.dtype}; valid is float32: module.float()')
  for name, output, width in (('embed', embeddings, embeddings.shape[-1]), ('predict', probs(embeddings), num_tokens)):
    if output.shape != (1, 1, width):
      raise ValueError(f'{name} returns shape {tuple(output.shape)} for one token; valid is (1, 1, {width})')

  def pull_back(embeddings: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    leaf = torch.tensor(embeddings, requires_grad=True)
    (slope,) = torch.autograd.grad(probs(leaf), leaf, torch.tensor(slopes))
    return slope.numpy(force=True)

  on_numpy = lambda function, dtype: lambda x: function(torch.tensor(x, dtype=dtype)).numpy(force=True)
  return TorchModel(
    num_tokens, embeddings.shape[-1], on_numpy(words, torch.int64), on_numpy(probs, torch.float32), pull_back
  )


@dataclasses.dataclass(frozen=True)
class TorchModel(MaskedLM):
  """A model that torch computes, made by `from_torch`.

  Attributes:
    num_tokens: V.
    width: E.
    words: torch's embeddings [B, T, E] of ids [B, T], as numpy arrays, as all that follow.
    probs: torch's probabilities [B, T, V] of embeddings.
    pull_back: the slopes [B, T, E] of embeddings, from these and the slopes of their probabilities.
  """

  num_tokens: int
  width: int
  words: Callable[[np.ndarray], np.ndarray]
  probs: Callable[[np.ndarray], np.ndarray]
  pull_back: Callable[[np.ndarray, np.ndarray], np.ndarray]

  name = 'torch'

  def embed(self, params: Any, tokens: Array) -> Array:
    del params
    return _call(self.words, 1, (*tokens.shape, self.width), tokens)

  def predict(self, params: Any, embeddings: Array, positions: Positions = None) -> Array:
    del params
    return at_positions(_probs(self, embeddings), positions)


def _call(function: Callable[..., np.ndarray], num_axes: int, shape: tuple[int, ...], *arrays: Array) -> Array:
  """`function` of arrays as a JAX operation; the result is float32 of this shape.

  `function` takes and returns arrays with one batch axis in front. Here any axes may stand before the last `num_axes`
  of each array, the same for all: they are flattened into that axis, and the result gets them back.
  """

  def with_one_batch_axis(*arrays: Any) -> np.ndarray:
    # Of the arrays and not of `shape`, since vmap adds axes in front.
    batch = np.shape(arrays[0])[:-num_axes]
    result = function(*(np.reshape(x, (-1, *np.shape(x)[-num_axes:])) for x in arrays))
    return result.reshape(*batch, *result.shape[1:]).astype(np.float32)

  of = jax.ShapeDtypeStruct(shape, jnp.float32)
  return jax.pure_callback(with_one_batch_axis, of, *arrays, vmap_method='broadcast_all')


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _probs(model: TorchModel, embeddings: Array) -> Array:
  return _call(model.probs, 2, (*embeddings.shape[:-1], model.num_tokens), embeddings.astype(jnp.float32))


def _forward(model: TorchModel, embeddings: Array) -> tuple[Array, Array]:
  return _probs(model, embeddings), embeddings


def _backward(model: TorchModel, embeddings: Array, slopes: Array) -> tuple[Array]:
  return (_call(model.pull_back, 2, embeddings.shape, embeddings.astype(jnp.float32), slopes),)


_probs.defvjp(_forward, _backward)
