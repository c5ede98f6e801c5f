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
  same = lambda x, y: x.dtype == y.dtype and x.shape == y.shape and np.asarray(x).tobytes() == np.asarray(y).tobytes()
  return jax.tree.all(jax.tree.map(same, ours, theirs))


def edited(path, **fields):
  path.write_text(json.dumps(json.loads(path.read_text()) | fields))
