"""The interface of a language model, masked or causal, and the exact model: the paper's G-bar (section 3.1).

A model is two functions with a prompt's worth of room between them: `embed` turns tokens into embeddings and
`predict` turns embeddings into token probabilities. Concatenating rows between the two is prompting. Tuners,
heads, metrics and figures see only this interface, and never ask which model they have.
"""

import abc
from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple, Protocol, TYPE_CHECKING

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import arguments, float64
from hmm_jax._support.display import helped
from hmm_jax.distributions.hmm import Distribution, emitted_token_probs, text_likelihoods
from hmm_jax.inference.pairs import probs_before, probs_between
from hmm_jax.inference.posterior import forward_backward


class PromptSpace(NamedTuple):
  """The prompts that a model accepts, and the region where they start.

  Attributes:
    center: the middle of the region that prompts start in.
    unit: the half-width of that region per unit of the initial scale.
    low: the least entry of a prompt.
    high: the largest.

  >>> space = PromptSpace(center=0.75, unit=0.5, low=0.0, high=1.0)
  >>> print(space.project(jnp.array([-1.0, 0.5, 2.0])))
  [0.  0.5 1. ]
  """

  center: float
  unit: float
  low: float = -math.inf
  high: float = math.inf

  def project(self, prompt: Array) -> Array:
    """The nearest prompt that the model takes."""
    return jnp.clip(prompt, self.low, self.high)


# The positions to read, [Q] for all inputs or [..., Q] for each; None for all in order.
Positions = Array | np.ndarray | None
# Called with the name of an activation and its value [..., T, D]; the rest of the model reads the result.
Visit = Callable[[str, Array], Array]


@arguments.converted
def at_positions(x: Array, positions: Positions) -> Array:
  """The rows [..., Q, D] of x [..., T, D] at `positions`, from 0 to T - 1; x itself if None.

  >>> at_positions(jnp.arange(12).reshape(4, 3), np.array([3, 0])).tolist()
  [[9, 10, 11], [0, 1, 2]]
  """
  if positions is None:
    return x
  arguments.check_ids('positions', positions, x.shape[-2])
  if positions.ndim == 1:
    return jnp.take(x, positions, axis=-2, mode='clip')
  arguments.check_shape('positions', positions, *x.shape[:-2], 'Q')
  return jnp.take_along_axis(x, positions[..., None], axis=-2, mode='clip')


def joined(parts: Sequence[Array]) -> Array:
  """Parts [..., T_i, D] concatenated along time; leading axes broadcast."""
  if len(parts) == 1:
    return parts[0]
  for part in parts:
    arguments.check_shape('embeddings or a prompt', part, ..., parts[-1].shape[-1])
  shape = jnp.broadcast_shapes(*(part.shape[:-2] for part in parts))
  return jnp.concatenate([jnp.broadcast_to(part, shape + part.shape[-2:]) for part in parts], axis=-2)


def parts_with(prompts: Array, embeddings: Array, place: int = 0) -> list[Array]:
  """Each prompt [..., P, E] before position `place` of each sequence [B, T, E], as the parts that `joined` takes."""
  prompt = prompts[..., None, :, :]
  return [embeddings[..., :place, :], prompt, embeddings[..., place:, :]] if place else [prompt, embeddings]


@arguments.converted
def prepend(prompts: Array, embeddings: Array, place: int = 0) -> Array:
  """Each prompt [..., P, E] before each embedded sequence [B, T, E], [..., B, P + T, E]; the paper's (3.2).

  With a `place` it stands before this position of the sequence: 1 is between a first [MASK] and the text.

  >>> prepend(jnp.zeros((2, 3)), jnp.ones((5, 4, 3))).shape
  (5, 6, 3)
  >>> prepend(jnp.zeros((2, 1)), jnp.ones((1, 3, 1)), place=1).ravel().tolist()
  [1.0, 0.0, 0.0, 1.0, 1.0]
  """
  return joined(parts_with(prompts, embeddings, arguments.position('place', place, embeddings.shape[-2])))


class MaskedLM(Protocol):
  """A language model, masked or causal, as pure functions of its parameters. Leading axes `...` are batches.

  Row i of a prediction is the law of token i given the tokens that the model sees: all others, or those before i if it
  is `causal`.

  Your own model is a frozen dataclass with this base and a field `num_tokens`; `embed` and `predict` suffice, and other
  methods fall back on them (docs/how_to/own_model.md). Token ids 0 to V - 1 are the vocabulary; id V is [MASK]. Models
  with equal fields are equal and share compiled programs. `positions` are those to read, as in `at_positions`; None
  reads all T. Others need not be computed.

  >>> import hmm_jax as hj
  >>> hmm, model = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), ExactModel(num_tokens=4)
  >>> embeddings = model.embed(hmm, jnp.array([4, 1, 2, 3, 0]))
  >>> model.name, embeddings.shape, model.predict(hmm, embeddings).shape
  ('exact', (5, 3), (5, 4))
  """

  # The default is BERT's.
  prompt_space: ClassVar[PromptSpace] = PromptSpace(center=0.0, unit=1.0)

  if TYPE_CHECKING:
    # For type checkers only: a dataclass field would take a property of the base as its default.
    @property
    def num_tokens(self) -> int:
      """V."""

  @property
  def name(self) -> str:
    """The model's name in records."""
    return type(self).__name__

  @property
  def causal(self) -> bool:
    """True if row i depends only on the tokens before i."""
    return False

  @property
  def max_positions(self) -> int:
    """The most rows that `predict` takes, a prompt included."""
    return 2**20

  @abc.abstractmethod
  def embed(self, params: Any, tokens: Array) -> Array:
    """Embeddings [..., T, E] of tokens [..., T]."""

  @abc.abstractmethod
  def predict(self, params: Any, embeddings: Array, positions: Positions = None) -> Array:
    """Token probabilities [..., Q, V], the paper's G-bar, of embeddings [..., T, E]."""

  def predict_prompted(
    self, params: Any, prompts: Array, tokens: Array, positions: Positions = None, place: int = 0
  ) -> Array:
    """Token probabilities [K, B, Q, V] of tokens [B, T] with each of the prompts [K, P, E] before position `place`.

    They equal `predict` of `prepend(prompts, embed(tokens), place)` and may cost less; `positions` count the prompt.
    """
    return self.predict(params, prepend(prompts, self.embed(params, tokens), place), positions)

  def represent(self, params: Any, embeddings: Array, positions: Positions = None) -> Array:
    """The representation [..., Q, E] that `predict` decodes; a model without one returns its probabilities."""
    return self.predict(params, embeddings, positions)

  def decode(self, params: Any, hidden: Array) -> Array:
    """Token probabilities [..., V] of representations [..., E]: `predict` is `decode` of `represent`.

    The default raises ValueError.
    """
    raise ValueError(f'model {self.name} has no decode; valid is a model that overrides decode')

  def predict_visiting(self, params: Any, embeddings: Array, visit: Visit, positions: Positions = None) -> Array:
    """`predict`, except that each activation passes through `visit`, and the rest of the model reads the result.

    Attention weights [..., heads, T, T] have names that begin with 'attention'. The default visits 'representation',
    the result of `represent`, which cannot be replaced: ValueError.
    """
    hidden = self.represent(params, embeddings)
    if visit('representation', hidden) is not hidden:
      raise ValueError(
        f"model {self.name} cannot replace 'representation'; valid is a model that overrides predict_visiting"
      )
    return self.predict(params, embeddings, positions)

  def embedding_size(self, params: Any) -> int:
    """E."""
    return jax.eval_shape(self.embed, params, jnp.zeros(1, jnp.int32)).shape[-1]


@arguments.converted
def token_probs(model: MaskedLM, params: Any, tokens: Array | np.ndarray, positions: Positions = None) -> Array:
  """The model's predictions [..., Q, V] at `positions` of tokens [..., T], [MASK] being V.

  Raises ValueError at an id or a position that does not exist, and parameters that are no valid distribution, where
  values are known (`hmm_jax._support.arguments`).

  >>> import hmm_jax as hj
  >>> hmm, model = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), ExactModel(num_tokens=4)
  >>> token_probs(model, hmm, jnp.array([4, 1, 2, 3, 0]), np.array([0])).shape
  (1, 4)
  """
  return _of_text(model, 'predict', params, tokens, positions)


@arguments.converted
def representation(model: MaskedLM, params: Any, tokens: Array, positions: Positions = None) -> Array:
  """The representation [..., Q, E] that predictions are decoded from, at `positions` of tokens [..., T].

  Raises ValueError as `token_probs` does.

  >>> import hmm_jax as hj
  >>> hmm, model = hj.random_hmm(jax.random.key(0), num_states=3, num_tokens=4), ExactModel(num_tokens=4)
  >>> representation(model, hmm, jnp.array([4, 1, 2, 3, 0]), np.array([0])).shape
  (1, 3)
  """
  return _of_text(model, 'represent', params, tokens, positions)


def _of_text(model: MaskedLM, method: str, params: Any, tokens: Any, positions: Positions) -> Array:
  """The result of a method of the model on embedded tokens."""
  arguments.check_texts(model, params, tokens)
  arguments.check_ids('positions', positions, tokens.shape[-1])
  return _compiled(model, method, params, tokens, positions)


@functools.partial(float64.jit, static_argnames=('model', 'method'))
def _compiled(model: MaskedLM, method: str, params: Any, tokens: Any, positions: Positions) -> Array:
  return getattr(model, method)(params, model.embed(params, tokens), positions)


@helped
@dataclasses.dataclass(frozen=True)
class ExactModel(MaskedLM):
  """The model that pretraining aims at: embeddings are likelihood rows, prediction is message passing.

  Its parameters are an `HMM` or a `MemoryHMM`. A prompt row is u in [0, 1]^E, the emission probability of a fake
  token (section 3.1, appendix C.2); the representation is the posterior of the joint state, P[H_i | X_{-i}]. That of a
  causal one is the belief P[H_i | X_{1..i-1}].

  >>> import hmm_jax as hj
  >>> hmm = hj.HMM(np.array([0.5, 0.5]), np.array([[0, 1.0], [1, 0]]), np.eye(2))
  >>> model = ExactModel(num_tokens=2)
  >>> print(model.predict(hmm, model.embed(hmm, jnp.array([2, 1, 0]))))  # the first token is masked
  [[1. 0.]
   [0. 1.]
   [1. 0.]]
  """

  num_tokens: int
  causal: bool = False

  name = 'exact'
  # Rows of ones are no evidence, so a start in [1/2, 1] (scale 0.5) is close to no prompt at all.
  prompt_space = PromptSpace(center=0.75, unit=0.5, low=0.0, high=1.0)

  def embed(self, params: Distribution, tokens: Array) -> Array:
    return text_likelihoods(params, tokens)

  def predict(self, params: Distribution, embeddings: Array, positions: Positions = None) -> Array:
    return self.decode(params, self.represent(params, embeddings, positions))

  def predict_prompted(
    self, params: Distribution, prompts: Array, tokens: Array, positions: Positions = None, place: int = 0
  ) -> Array:
    """Override with one pass for each text instead of K where the first token alone is read, a prompt beside it.

    `positions` is the numpy array [P] with `place` 0, or [0] with `place` 1.
    """
    embeddings = self.embed(params, tokens)
    read = positions.tolist() if isinstance(positions, np.ndarray) and not self.causal else None
    pairs: Any
    if place == 0 and read == [prompts.shape[-2]]:
      pairs = probs_between
    elif place == 1 and read == [0]:
      pairs = probs_before
    else:
      return self.predict(params, prepend(prompts, embeddings, place), positions)
    return emitted_token_probs(params, pairs(params, prompts, embeddings[:, 1:])[:, :, None])

  def predict_visiting(
    self, params: Distribution, embeddings: Array, visit: Visit, positions: Positions = None
  ) -> Array:
    """Override: 'beliefs' are the representation, and a prediction is the law of a token of that state."""
    beliefs = visit('beliefs', self.represent(params, embeddings))
    return self.decode(params, at_positions(beliefs, positions))

  def represent(self, params: Distribution, embeddings: Array, positions: Positions = None) -> Array:
    posterior = forward_backward(params, embeddings)
    return at_positions(posterior.predicted_probs if self.causal else posterior.leave_one_out_probs, positions)

  def decode(self, params: Distribution, hidden: Array) -> Array:
    return emitted_token_probs(params, hidden)
