"""The interface of a masked language model, and the exact model: the paper's G-bar (section 3.1).

A model is two functions with a prompt's worth of room between them: `embed` turns tokens into embeddings and
`predict` turns embeddings into token probabilities. Concatenating rows between the two is prompting. Tuners,
heads, metrics and figures see this interface alone, and never ask which model they have.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple, Protocol

import jax
from jax import Array
import jax.numpy as jnp

from hmm_jax import inference
from hmm_jax.hmm import conditional_token_probs, Distribution, token_likelihoods


class PromptSpace(NamedTuple):
  """Which prompts a model takes, and where they start.

  Attributes:
    center: the middle of the region that prompts start in.
    unit: the half-width of that region per unit of the initial scale.
    low: the least entry of a prompt.
    high: the largest.
  """

  center: float
  unit: float
  low: float = -math.inf
  high: float = math.inf

  def project(self, prompt: Array) -> Array:
    """The nearest prompt that the model takes."""
    return jnp.clip(prompt, self.low, self.high)


class MaskedLM(Protocol):
  """A masked language model as pure functions of its parameters. Leading axes `...` are batches.

  Token ids 0 to V - 1 are the vocabulary; id V is [MASK]. Models of equal fields are equal and share programs.
  """

  @property
  def name(self) -> str:
    """What records call it."""

  @property
  def num_tokens(self) -> int:
    """V."""

  @property
  def prompt_space(self) -> PromptSpace: ...

  def embed(self, params: Any, tokens: Array) -> Array:
    """Embeddings [..., T, E] of tokens [..., T]."""

  def predict(self, params: Any, embeddings: Array) -> Array:
    """Token probabilities [..., T, V], the paper's G-bar, of embeddings [..., T, E]."""

  def represent(self, params: Any, embeddings: Array) -> Array:
    """The representation [..., T, E] that `predict` reads out."""

  def embedding_size(self, params: Any) -> int:
    """E."""


@functools.partial(jax.jit, static_argnames='model')
def token_probs(model: MaskedLM, params: Any, tokens: Array) -> Array:
  """What the model predicts at every position of tokens [..., T], [..., T, V]."""
  return model.predict(params, model.embed(params, tokens))


@functools.partial(jax.jit, static_argnames='model')
def representation(model: MaskedLM, params: Any, tokens: Array) -> Array:
  """What the model's predictions are read out of at every position of tokens [..., T], [..., T, E]."""
  return model.represent(params, model.embed(params, tokens))


@dataclasses.dataclass(frozen=True)
class ExactModel:
  """The model that pretraining aims at: embeddings are likelihood rows, prediction is message passing.

  Its parameters are an `HMM` or a `MemoryHMM`. A prompt row is u in [0, 1]^E, the emission probability of a fake
  token (section 3.1, appendix C.2); what it represents is the posterior of the joint state, P[H_i | X_{-i}].
  """

  num_tokens: int

  name = 'exact'
  # Rows of ones say nothing, so a start in [1/2, 1], that of scale 0.5, is close to no prompt at all.
  prompt_space = PromptSpace(center=0.75, unit=0.5, low=0.0, high=1.0)

  def embed(self, params: Distribution, tokens: Array) -> Array:
    return token_likelihoods(params, tokens, tokens != self.num_tokens)

  def predict(self, params: Distribution, embeddings: Array) -> Array:
    return conditional_token_probs(params, embeddings)

  def represent(self, params: Distribution, embeddings: Array) -> Array:
    return inference.forward_backward(params, embeddings).leave_one_out_probs

  def embedding_size(self, params: Distribution) -> int:
    return params.joint_initial_probs.shape[-1]
