"""The interface of a masked language model, and the exact model: the paper's G-bar (section 3.1).

A model is two functions with a prompt's worth of room between them: `embed` turns tokens into embeddings and
`predict` turns embeddings into token probabilities. Concatenating rows between the two is prompting. Tuners,
heads, metrics and figures see this interface alone, and never ask which model they have.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmm_jax import inference
from hmm_jax.hmm import conditional_token_probs
from hmm_jax.hmm import token_likelihoods

Array = jax.Array


class MaskedLM(NamedTuple):
  """A masked language model as pure functions of its parameters. Leading axes `...` are batches.

  Token ids 0 to V - 1 are the vocabulary; id V is [MASK].

  Attributes:
    name: what records call it.
    num_tokens: V.
    embed: (params, tokens [..., T]) -> embeddings [..., T, E].
    predict: (params, embeddings [..., T, E]) -> token probabilities [..., T, V], the paper's G-bar.
    represent: (params, embeddings [..., T, E]) -> the representation [..., T, R] that `predict` reads out.
    embedding_size: (params) -> E.
    prompt_center: the middle of the region that prompts start in.
    prompt_unit: the half-width of that region per unit of the initial scale.
    project_prompt: maps a prompt to the nearest one that the model accepts.
  """

  name: str
  num_tokens: int
  embed: Callable[[Any, Array], Array]
  predict: Callable[[Any, Array], Array]
  represent: Callable[[Any, Array], Array]
  embedding_size: Callable[[Any], int]
  prompt_center: float
  prompt_unit: float
  project_prompt: Callable[[Array], Array]

  @property
  def mask_id(self) -> int:
    return self.num_tokens


def _posterior_states(hmm, likelihoods):
  return inference.forward_backward(hmm, likelihoods).leave_one_out_probs


@functools.cache
def exact_model(num_tokens: int) -> MaskedLM:
  """The model that pretraining aims at: embeddings are likelihood rows, prediction is message passing.

  Its parameters are an `HMM` or a `MemoryHMM`. A prompt row is u in [0, 1]^E, the emission probability of a fake
  token (section 3.1, appendix C.2); what it represents is the posterior of the joint state, P[H_i | X_{-i}].
  """
  return MaskedLM(
    name='exact',
    num_tokens=num_tokens,
    embed=lambda hmm, tokens: token_likelihoods(hmm, tokens, tokens != num_tokens),
    predict=conditional_token_probs,
    represent=_posterior_states,
    embedding_size=lambda hmm: hmm.joint_initial_probs.shape[-1],
    # Rows of ones say nothing, so a start in [1/2, 1] is close to no prompt at all.
    prompt_center=0.75,
    prompt_unit=0.5,
    project_prompt=lambda prompt: jnp.clip(prompt, 0, 1),
  )
