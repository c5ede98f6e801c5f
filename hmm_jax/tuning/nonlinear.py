"""Heads that are no linear function of a model's output at one [MASK]: features of a degree, and a hidden layer."""

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
from jax import Array
import numpy as np

from hmm_jax._support import arguments
from hmm_jax.tuning.heads import AtMask, init_linear_head, linear_scores, LinearHead


def power_features(features: Any, degree: int) -> Any:
  """The coordinates [..., C(V + k - 1, k)] of the symmetric power of degree k of features [..., V].

  They are the products of k of the V numbers, each times the root of the number of orders of its factors, so that
  <power(g), power(h)> = <g, h>^k. A linear head on them is any form of degree k. Where the features sum to 1, as
  probabilities do, these are all polynomials of degree at most k. Arrays of numpy stay in numpy and keep their type.

  >>> power_features(np.array([1.0, 2.0]), 2).round(3).tolist()
  [1.0, 2.828, 4.0]
  """
  arguments.check_size('degree', degree, 1)
  factors = list(itertools.combinations_with_replacement(range(features.shape[-1]), degree))
  if not factors:
    return features
  orders = [len(set(itertools.permutations(row))) for row in factors]
  return features[..., np.array(factors)].prod(-1) * np.sqrt(orders).astype(features.dtype)


class MlpHead(NamedTuple):
  """A head with one hidden layer, output(relu(hidden(features))).

  Attributes:
    hidden: [F, U] and [U].
    output: [U, C] and [C].
  """

  hidden: LinearHead
  output: LinearHead


@dataclasses.dataclass(frozen=True)
class Mlp(AtMask):
  """`MlpHead` on the output at the [MASK].

  Attributes:
    width: U, the number of hidden units.

  >>> head = Mlp(num_classes=2, width=8)
  >>> params = head.init(jax.random.key(0), num_features=4, prompt_length=0, length=5)
  >>> head.scores(params, np.ones((7, 4))).shape
  (7, 2)
  """

  width: int = 300

  def init(self, key: Array, num_features: int, prompt_length: int, length: int) -> MlpHead:
    key_hidden, key_output = jax.random.split(key)
    hidden = init_linear_head(key_hidden, num_features, self.width)
    return MlpHead(hidden, init_linear_head(key_output, self.width, self.num_classes))

  def scores(self, params: MlpHead, features: Array) -> Array:
    return linear_scores(params.output, jax.nn.relu(linear_scores(params.hidden, features)))
