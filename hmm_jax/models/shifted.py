"""A model whose prompt is a vector that is added to its last activation, the control of a prompt before the text."""

import dataclasses
from typing import Any

from jax import Array

from hmm_jax._support.arguments import check_shape
from hmm_jax.models.model import at_positions, MaskedLM, Positions, prepend


@dataclasses.dataclass(frozen=True)
class Shifted(MaskedLM):
  """`model`, seen as `represent` and `decode`: a prompt v [1, D] is a constant shift of what is decoded.

  With it row i of a prediction is decode(represent_i + v), for every text. A tuner trains v as it trains a prompt. The
  model must override `decode`; of the exact model's beliefs the sum is no law, and what is decoded none either.

  Source: Subramani et al. 2022, "Extracting latent steering vectors from pretrained language models".

  >>> import jax, numpy as np, hmm_jax as hj
  >>> bert = hj.Bert(num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=5, dropout_rate=0.0)
  >>> tokens = np.array([[1, 2, 4]])
  >>> params, model = bert.init(jax.random.key(0), tokens)['params'], Shifted(hj.BertModel(bert))
  >>> model.embedding_size(params), model.predict_prompted(params, np.ones((7, 1, 8)), tokens, np.array([3])).shape
  (8, (7, 1, 1, 4))
  """

  model: MaskedLM

  @property
  def num_tokens(self) -> int:
    return self.model.num_tokens

  @property
  def causal(self) -> bool:
    return self.model.causal

  def embed(self, params: Any, tokens: Array) -> Array:
    return self.model.represent(params, self.model.embed(params, tokens))

  def predict(self, params: Any, embeddings: Array, positions: Positions = None) -> Array:
    return self.model.decode(params, at_positions(embeddings, positions))

  def predict_prompted(
    self, params: Any, prompts: Array, tokens: Array, positions: Positions = None, place: int = 0
  ) -> Array:
    """Override: each prompt [1, D] is added to all rows, and has one of its own, which `positions` count.

    Raises ValueError for a prompt of another shape.
    """
    hidden = self.embed(params, tokens)
    check_shape('prompt of a shifted model', prompts, ..., 1, hidden.shape[-1])
    return self.predict(params, prepend(prompts, hidden + prompts[..., None, :, :], place), positions)
