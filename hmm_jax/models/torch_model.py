"""A frozen torch module as a `MaskedLM`: JAX calls it, and its gradient in the embeddings, through callbacks."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, TYPE_CHECKING

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import arguments
from hmm_jax.models.model import at_positions, MaskedLM, Positions

if TYPE_CHECKING:
  import torch

# The most ids that a module is compared on.
_MOST_IDS = 4096
# A change by a later token of less than this share of that by an earlier one is rounding.
_NO_CHANGE = 1e-3


def from_torch(
  module: Any,
  num_tokens: int,
  embed: 'Callable[[torch.Tensor], torch.Tensor] | None' = None,
  predict: 'Callable[[torch.Tensor], torch.Tensor] | None' = None,
) -> 'TorchModel':
  """A torch module, frozen and in evaluation mode, as the model that heads, prompts and probes are tuned on.

  Its parameters stay in torch, so that JAX's are `()`: `hj.tune(model, (), hmm, task)`. The functions receive tensors
  on the CPU, embeddings in the type that `embed` returns, and results come back in float32; every call crosses from JAX
  to torch and back.

  The model is called on texts of all ids (of more than 4,096, on that many): a language model of Hugging Face must give
  for embeddings what it gives for ids, to 1e-5. A causal one, whose rows no later token changes, is `causal` here: if
  its row i reads token i, that row is read from [MASK] and the tokens before i.

  Args:
    module: any; without `embed` and `predict` a language model of Hugging Face's transformers, masked or causal.
    num_tokens: the number V of tokens. Ids 0 to V - 1 are tokens; [MASK], with which a causal text begins, is id V.
    embed: from ids [B, T] to embeddings [B, T, E]; the module's `get_input_embeddings()` if None.
    predict: from embeddings [B, T, E] to probabilities [B, T, V]; row i is the law of token i given all others, or
      given those before it alone, or of token i + 1 given those up to i. If None the softmax of the first V of the
      module's `logits` for `inputs_embeds`.

  Raises:
    ImportError: torch is not installed.
    ValueError: the module cannot embed [MASK] or predict, its embeddings are of half precision, `predict` returns
      another shape or no probabilities, or the module gives something else for ids.

  Example, with functions of its own in place of a masked language model:

    >>> import pytest
    >>> torch = pytest.importorskip('torch')
    >>> module = torch.nn.Linear(3, 4)
    >>> embed, predict = torch.nn.Embedding(5, 3), lambda x: module(x).softmax(-1)
    >>> model = from_torch(module, 4, embed, predict)
    >>> model.predict((), model.embed((), jnp.array([3, 1]))).shape, model.causal
    ((2, 4), False)
  """
  import torch

  arguments.check_size('num_tokens', num_tokens)
  module.eval().requires_grad_(False)
  of_module = lambda **inputs: module(**inputs).logits[..., :num_tokens].softmax(-1)
  of_rows = predict or (lambda rows: of_module(inputs_embeds=rows))
  texts = torch.tensor(_texts(num_tokens))
  try:
    words = embed or module.get_input_embeddings()
    rows = words(texts)
    probs = of_rows(rows)
    of_ids = probs if predict else of_module(input_ids=texts)
    causal, reads_itself = _reads(lambda texts: of_rows(words(texts)), texts[:16], num_tokens)
  except Exception as error:  # torch raises anything.
    raise ValueError(
      f'module does not embed and predict ids up to [MASK], {num_tokens} ({type(error).__name__}: {error}); valid is a '
      'language model that does, or `embed` and `predict`'
    )
  if rows.dtype not in (torch.float32, torch.float64):
    raise ValueError(f'module computes in {rows.dtype}; valid is float32: module.float()')
  _check(probs.numpy(force=True), of_ids.numpy(force=True), texts.numpy(), num_tokens)
  law = of_rows
  if causal and reads_itself:
    beginning = words(torch.full((1, 1), num_tokens))
    law = lambda rows: of_rows(torch.cat([beginning.expand(len(rows), -1, -1), rows[:, :-1]], 1))
  most = getattr(getattr(module, 'config', None), 'max_position_embeddings', TorchModel.max_positions)
  return TorchModel(num_tokens, rows.shape[-1], words, lambda given: law(given.to(rows.dtype)), causal, most)


def _texts(num_tokens: int) -> np.ndarray:
  """Texts [n, 4] of all ids and [MASK]; of a large vocabulary of _MOST_IDS."""
  some = np.linspace(0, num_tokens - 1, min(num_tokens, _MOST_IDS)).astype(int)
  ids = np.append(some, num_tokens)
  return np.resize(np.random.default_rng(0).permutation(ids), (-(-len(ids) // 4), 4))


def _reads(predict: Any, texts: Any, num_tokens: int) -> tuple[bool, bool]:
  """Two answers by changing tokens of texts [n, T]: if no row reads a later one, and if the last reads its own."""
  probs = predict(texts)

  def change(column: int) -> Any:
    others = texts.clone()
    others[:, column] = (others[:, column] + 1) % (num_tokens + 1)
    return (predict(others) - probs).abs().amax((0, 2))

  by_first, by_last = change(0), change(-1)
  least = _NO_CHANGE * by_first[1:].max()
  return bool(by_last[:-1].max() < least), bool(by_last[-1] >= least)


def _check(probs: np.ndarray, of_ids: np.ndarray, texts: np.ndarray, num_tokens: int) -> None:
  """Raise ValueError unless probs [n, 4, V] are probabilities, and those that a module gives for ids itself."""
  arguments.check_probs('what predict returns', probs, *texts.shape, num_tokens, within=1e-4)
  by_text = np.abs(probs - of_ids).max((1, 2))
  if by_text.max() > 1e-5:
    raise ValueError(
      f'module gives other probabilities for inputs_embeds than for input_ids, by {by_text.max():.2g} in the text '
      f'{texts[by_text.argmax()].tolist()}; valid is one that reads tokens by their embeddings alone, or `predict`'
    )


@dataclasses.dataclass(frozen=True)
class TorchModel(MaskedLM):
  """A model that torch computes, made by `from_torch`.

  Attributes:
    num_tokens: V.
    width: E.
    words: embeddings [B, T, E] of ids [B, T], as tensors, as what follows.
    law: probabilities [B, T, V] of embeddings.
    causal: whether row i sees only the tokens before i.
    max_positions: those of the module's config, if it has one.
  """

  num_tokens: int
  width: int
  words: 'Callable[[torch.Tensor], torch.Tensor]'
  law: 'Callable[[torch.Tensor], torch.Tensor]'
  causal: bool = False
  max_positions: int = 2**20

  name = 'torch'

  def embed(self, params: Any, tokens: Array) -> Array:
    return _call(lambda ids: self.words(ids.long()), 1, (*tokens.shape, self.width), tokens.astype(jnp.int32))

  def predict(self, params: Any, embeddings: Array, positions: Positions = None) -> Array:
    return at_positions(_probs(self, embeddings), positions)

  def pull_back(self, embeddings: Any, slopes: Any) -> Any:
    """The slopes [B, T, E] of embeddings, from those of their probabilities."""
    import torch

    probs = self.law(embeddings.requires_grad_())
    return torch.autograd.grad(probs, embeddings, slopes.to(probs.dtype))[0]


def _call(function: Callable[..., Any], num_axes: int, shape: tuple[int, ...], *arrays: Array) -> Array:
  """`function` of tensors as a JAX operation; the result is float32 of this shape.

  `function` takes and returns tensors with one batch axis in front. Here any axes may stand before the last `num_axes`
  of each array, the same for all: they are flattened into that axis, and the result gets them back.
  """

  def with_one_batch_axis(*arrays: Any) -> np.ndarray:
    import torch

    # Of the arrays and not of `shape`, since vmap adds axes in front.
    batch = np.shape(arrays[0])[:-num_axes]
    tensors = [torch.tensor(np.reshape(x, (-1, *np.shape(x)[-num_axes:]))) for x in arrays]
    result = function(*tensors).numpy(force=True)
    return result.reshape(*batch, *result.shape[1:]).astype(np.float32)

  of = jax.ShapeDtypeStruct(shape, jnp.float32)
  return jax.pure_callback(with_one_batch_axis, of, *arrays, vmap_method='broadcast_all')


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _probs(model: TorchModel, embeddings: Array) -> Array:
  return _call(model.law, 2, (*embeddings.shape[:-1], model.num_tokens), embeddings.astype(jnp.float32))


def _backward(model: TorchModel, embeddings: Array, slopes: Array) -> tuple[Array]:
  return (_call(model.pull_back, 2, embeddings.shape, embeddings.astype(jnp.float32), slopes),)


_probs.defvjp(lambda model, embeddings: (_probs(model, embeddings), embeddings), _backward)
