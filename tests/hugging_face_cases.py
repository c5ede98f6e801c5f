"""Hugging Face's `BertForMaskedLM`, or causal `BertLMHeadModel`, with the weights of our BERT."""

from typing import Any

import torch
import transformers

from hmm_jax.files import hugging_face
from hmm_jax.models.bert import Bert


def model_of(bert: Bert, params: Any) -> transformers.BertPreTrainedModel:
  """Their model of the same architecture, dropout included, with our weights; in evaluation mode."""
  theirs = transformers.BertLMHeadModel if bert.causal else transformers.BertForMaskedLM
  model = theirs(transformers.BertConfig(**hugging_face.config_of(bert))).eval()
  with torch.no_grad():
    for name, value in hugging_face.state_of(params).items():
      model.get_parameter(name).copy_(torch.tensor(value))
  return model
