"""A Flax module of your own as a `MaskedLM`, and as the network that pretraining trains."""

import dataclasses
from typing import Any

from flax import linen as nn
from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import arguments
from hmm_jax._support.display import helped
from hmm_jax.models.model import at_positions, MaskedLM, Positions, token_probs, Visit


@helped
@dataclasses.dataclass(frozen=True)
class FlaxModel(MaskedLM):
  """A linen module with methods `embed` and `predict` as a `MaskedLM`; its parameters are its 'params' tree.

  Attributes:
    module: `embed` turns tokens [..., T] with ids 0 to V, [MASK] being V, into embeddings [..., T, E]; `predict` turns
      those into probabilities [..., T, V]. Row i is the law of token i given all others, or with an attribute `causal`
      that is True given the tokens before i. Modules that drop out do so if `self.has_rng('dropout')`, in training.
    num_tokens: V.

  >>> import jax
  >>> class Unigram(nn.Module):
  ...   def setup(self):
  ...     self.words, self.out = nn.Embed(5, 2), nn.Dense(4)
  ...   def embed(self, tokens):
  ...     return self.words(tokens)
  ...   def predict(self, embeddings):
  ...     return nn.softmax(self.out(embeddings))
  >>> model, params = FlaxModel(Unigram(), num_tokens=4), network(Unigram()).init(jax.random.key(0), np.array([[4, 1]]))
  >>> token_probs(model, params['params'], np.array([[4, 1, 2]])).shape
  (1, 3, 4)
  """

  module: nn.Module
  num_tokens: int

  @property
  def name(self) -> str:
    return type(self.module).__name__

  @property
  def causal(self) -> bool:
    return getattr(self.module, 'causal', False)

  def embed(self, params: Any, tokens: Array) -> Array:
    return self._apply('embed', params, tokens)

  def predict(self, params: Any, embeddings: Array, positions: Positions = None) -> Array:
    return at_positions(self._apply('predict', params, embeddings), positions)

  def predict_visiting(self, params: Any, embeddings: Array, visit: Visit, positions: Positions = None) -> Array:
    """Override: visits the output [..., T, D] of each submodule that `predict` calls, by its name."""

    def visiting(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
      output, path = call(*args, **kwargs), context.module.path
      # What is inside of a submodule may be traced for a step of a scan.
      is_layer = len(path) == 1 and context.method_name == '__call__' and hasattr(output, 'shape')
      has_rows = is_layer and output.shape[:-1] == embeddings.shape[:-1]
      return visit(path[0], output) if has_rows else output

    with nn.intercept_methods(visiting):
      return self.predict(params, embeddings, positions)

  def _apply(self, method: str, params: Any, x: Array) -> Any:
    return self.module.apply({'params': arguments.tree('params', params)}, x, method=method)


class _LogProbs(nn.Module):
  """The log probabilities of a module's `predict`; the parameters are the module's own."""

  module: Any

  def setup(self) -> None:
    nn.share_scope(self, self.module)

  def __call__(self, tokens: Array, positions: Positions = None) -> Array:
    probs = at_positions(self.module.predict(self.module.embed(tokens)), positions)
    # A probability that underflows has no gradient, in place of an infinite one.
    return jnp.log(jnp.maximum(probs, jnp.finfo(probs.dtype).tiny))


def network(module: nn.Module) -> nn.Module:
  """The module as `hmm_jax.models.pretraining` calls it."""
  return _LogProbs(module)


def check(model: FlaxModel, params: Any, length: int) -> None:
  """Raise ValueError unless predictions of texts of this length are laws, and those of a causal model look back."""
  num_ids = model.num_tokens + 1
  # Two texts of all ids, [MASK] too, that differ in their last one.
  texts = np.tile(np.arange(length), (2, 1))
  texts[1, -1] += 1
  probs = np.asarray(token_probs(model, params, texts % num_ids))
  arguments.check_probs(f'what predict of {model.name} returns', probs, *texts.shape, model.num_tokens, within=1e-3)
  if model.causal and not np.allclose(probs[0, -1], probs[1, -1], atol=1e-5):
    raise ValueError(f'{model.name} is causal and reads the token that it predicts; valid are rows of earlier tokens')
