"""The interface of models: a prompt. That the exact model is exact, tests of tuning and of the gap show."""

from bert_cases import random_params, SMALLEST
import jax
import numpy as np
import pytest

from hmm_jax.models.bert import BertModel
from hmm_jax.models.model import MaskedLM

MODEL, PARAMS = BertModel(SMALLEST), random_params(SMALLEST, 1)
TEXTS = np.int32([[0, 4, 2], [1, 1, 4]])


@pytest.mark.parametrize('kind', [BertModel, MaskedLM])
@pytest.mark.parametrize('positions', [np.array([2]), None])
def test_a_prompt_is_rows_before_the_text(kind, positions):
  """`predict_prompted` gives for each prompt and text what `predict` gives for their concatenation.

  So does the default, in which a representation is the prediction.
  """
  prompts = np.random.default_rng(4).uniform(0.1, 1, (3, 2, SMALLEST.width)).astype(np.float32)
  probs = jax.jit(lambda prompts: kind.predict_prompted(MODEL, PARAMS, prompts, TEXTS, positions))(prompts)
  embeddings = np.asarray(MODEL.embed(PARAMS, TEXTS))
  whole = np.array([[np.concatenate([prompt, text]) for text in embeddings] for prompt in prompts])
  expected = jax.jit(lambda whole: MaskedLM.represent(MODEL, PARAMS, whole, positions))(whole)
  np.testing.assert_allclose(probs, expected, rtol=1e-4, atol=1e-5)
