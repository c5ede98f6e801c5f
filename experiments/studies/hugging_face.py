"""Hugging Face's `BertForMaskedLM` with the weights of our BERT."""

import re
from typing import Any

from flax.traverse_util import flatten_dict
import numpy as np
import torch
import transformers

from hmm_jax.models.bert import Bert

# All tokens are of one type here, whose embedding is zero.
TOKEN_TYPES = 'bert.embeddings.token_type_embeddings.weight'
# Their names of modules and parameters by ours. Our queries, keys and values are one matrix.
_NAMES = {
  'word_embedding.embedding': 'bert.embeddings.word_embeddings.weight',
  'position_embedding': 'bert.embeddings.position_embeddings.weight',
  'embedding_norm': 'bert.embeddings.LayerNorm',
  'layers_': 'bert.encoder.layer.',
  'attention_out': 'attention.output.dense',
  'attention_norm': 'attention.output.LayerNorm',
  'ffn_in': 'intermediate.dense',
  'ffn_out': 'output.dense',
  'ffn_norm': 'output.LayerNorm',
  'transform_norm': 'cls.predictions.transform.LayerNorm',
  'transform': 'cls.predictions.transform.dense',
  'output_bias': 'cls.predictions.bias',
  'kernel': 'weight',
  'scale': 'weight',
}


def named(params: Any) -> dict[str, np.ndarray]:
  """Our tree, or a gradient of its shape, by the names of `BertForMaskedLM.named_parameters`.

  A tree of scanned layers has no such names.
  """
  by_name: dict[str, np.ndarray] = {}
  for path, leaf in flatten_dict(params, sep='.').items():
    # torch multiplies by the transpose.
    values = np.asarray(leaf).T if path.endswith('kernel') else np.asarray(leaf)
    # All names in one pass, so that none is replaced within another.
    name = re.sub('|'.join(_NAMES), lambda ours: _NAMES[ours[0]], path)
    parts = zip(('query', 'key', 'value'), np.split(values, 3)) if '.qkv.' in name else [('', values)]
    by_name |= {name.replace('qkv', f'attention.self.{part}'): rows for part, rows in parts}
  return by_name


def model_of(bert: Bert, params: Any) -> transformers.BertForMaskedLM:
  """Their model of the same architecture, dropout included, with our weights; in evaluation mode."""
  config = transformers.BertConfig(
    vocab_size=bert.num_tokens + 1,
    hidden_size=bert.width,
    num_hidden_layers=bert.num_layers,
    num_attention_heads=bert.num_heads,
    intermediate_size=bert.ffn_width,
    max_position_embeddings=bert.max_positions,
    type_vocab_size=1,
    pad_token_id=None,  # A padding token's embedding would get no gradient.
    hidden_act='gelu',
    layer_norm_eps=1e-12,
    hidden_dropout_prob=bert.dropout_rate,
    attention_probs_dropout_prob=bert.dropout_rate,
  )
  model = transformers.BertForMaskedLM(config).eval()
  with torch.no_grad():
    model.get_parameter(TOKEN_TYPES).zero_()
    for name, value in named(params).items():
      model.get_parameter(name).copy_(torch.tensor(value))
  return model
