"""A small BERT and its folder, for tests of files."""

import json

from bert_cases import random_params
import jax
import numpy as np

import hmm_jax as hj

WEIGHTS = 'model.safetensors'
BERT = hj.Bert(num_tokens=7, num_layers=2, width=12, num_heads=3, ffn_width=20, max_positions=14, dropout_rate=0.1)
MODEL, PARAMS = hj.BertModel(BERT), random_params(BERT)
TOKENS = np.random.default_rng(0).integers(0, 7, (100, 5))
TOKENS[:, 0] = 7


def equal_bits(ours, theirs):
  bits = lambda leaf: (leaf.dtype, leaf.shape, np.asarray(leaf).tobytes())
  return jax.tree.map(bits, ours) == jax.tree.map(bits, theirs)


def edited(path, **fields):
  path.write_text(json.dumps(json.loads(path.read_text()) | fields))
