"""Our BERT as Hugging Face's, and back: its config and its arrays, without torch or transformers.

A masked one is a `BertForMaskedLM`. A causal one is a `BertLMHeadModel` that is a decoder: its row i, read from [MASK]
and tokens 1 to T - 1, is our row i of tokens 1 to T.
"""

from collections.abc import Mapping
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmm_jax._support import arguments
from hmm_jax._support.float64 import with_promotion
from hmm_jax.files import folders
from hmm_jax.models.bert import Bert

# All tokens are of one type here, whose embedding is zero.
TOKEN_TYPES = 'bert.embeddings.token_type_embeddings.weight'
_WORDS = 'bert.embeddings.word_embeddings.weight'
_OUTPUT_BIAS = 'cls.predictions.bias'
# Their names of modules and parameters by ours. Our queries, keys and values are one matrix.
_NAMES = {
  'word_embedding.embedding': _WORDS,
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
  'output_bias': _OUTPUT_BIAS,
  'kernel': 'weight',
  'scale': 'weight',
}
_QKV = 'query', 'key', 'value'
# Their names of our fields: integers and other numbers. They do not have our dtype of the computation.
_SIZES = {
  'num_layers': 'num_hidden_layers',
  'width': 'hidden_size',
  'num_heads': 'num_attention_heads',
  'ffn_width': 'intermediate_size',
  'max_positions': 'max_position_embeddings',
}
_RATES = {'dropout_rate': 'hidden_dropout_prob', 'init_stddev': 'initializer_range'}
_DTYPES: dict[str, Any] = {'float32': jnp.float32, 'bfloat16': jnp.bfloat16, 'float16': jnp.float16}
# What our BERT has always, and theirs by default: a config without such a field has this value.
_FIXED = {
  'model_type': 'bert',
  'hidden_act': 'gelu',
  'layer_norm_eps': 1e-12,
  'position_embedding_type': 'absolute',
  'add_cross_attention': False,
  'tie_word_embeddings': True,
}
# What tells causal models from masked ones.
_KINDS: dict[bool, dict[str, Any]] = {
  False: {'architectures': ['BertForMaskedLM'], 'is_decoder': False},
  True: {'architectures': ['BertLMHeadModel'], 'is_decoder': True},
}
# Arrays that a masked language model does not read; those of the decoder are the words and the output's bias again, as
# `tie_word_embeddings` says.
_UNREAD = re.compile(r'bert\.pooler|cls\.seq_relationship|bert\.embeddings\.position_ids|cls\.predictions\.decoder')
_LAYER = 'bert.encoder.layer.'


def config_of(bert: Bert) -> dict[str, Any]:
  """The config of their model of the same architecture; fields that only ours has stand in its `hmm_jax`.

  >>> bert = Bert(num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=5, dropout_rate=0.1)
  >>> config_of(bert)['vocab_size']
  5
  """
  return {
    **_KINDS[bert.causal],
    'vocab_size': int(bert.num_tokens) + 1,
    **{theirs: int(getattr(bert, ours)) for ours, theirs in _SIZES.items()},
    **{theirs: float(getattr(bert, ours)) for ours, theirs in _RATES.items()},
    'attention_probs_dropout_prob': float(bert.dropout_rate),
    'type_vocab_size': 1,
    'pad_token_id': None,  # A padding token's embedding would get no gradient.
    **_FIXED,
    'hmm_jax': {'dtype': jnp.dtype(bert.dtype).name},
  }


def bert_of(config: Mapping[str, Any]) -> Bert:
  """The architecture of a config of `BertForMaskedLM` or `BertLMHeadModel`, trained here or elsewhere.

  Raises:
    ValueError: the first field that is missing, or that our BERT cannot follow.

  >>> bert = Bert(num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=5, dropout_rate=0.1)
  >>> bert_of(config_of(bert)) == bert
  True
  """
  # A model that was trained elsewhere has no fields of ours; what else earlier versions wrote changes no number.
  dtype = config.get('hmm_jax', {}).get('dtype', 'float32')
  causal = config.get('architectures') == _KINDS[True]['architectures']
  config = {**_FIXED, 'is_decoder': False, **config}
  # First what a config of another kind lacks.
  for name, valid in {**_KINDS[causal], **_FIXED}.items():
    _check(config, name, valid)
  sizes: dict[str, Any] = {ours: _size(config, theirs) for ours, theirs in _SIZES.items()}
  sizes |= {ours: _rate(config, theirs) for ours, theirs in _RATES.items()}
  _check(config, 'attention_probs_dropout_prob', sizes['dropout_rate'])
  arguments.require(dtype in _DTYPES, 'hmm_jax.dtype of config.json', dtype, ', '.join(_DTYPES))
  return Bert(_size(config, 'vocab_size') - 1, **sizes, dtype=_DTYPES[dtype], causal=causal)


def _check(config: Mapping[str, Any], name: str, valid: Any) -> None:
  found = config.get(name)
  arguments.require(found == valid, f'{name} of config.json', found, repr(valid))


def _size(config: Mapping[str, Any], name: str) -> int:
  """A field that is a positive integer."""
  arguments.check_size(f'{name} of config.json', config.get(name))
  return config[name]


def _rate(config: Mapping[str, Any], name: str) -> float:
  """A field that is a number from 0 to below 1."""
  value: Any = config.get(name)
  is_rate = type(value) in (int, float) and 0 <= value < 1
  arguments.require(is_rate, f'{name} of config.json', value, 'from 0 to below 1')
  return float(value)


@with_promotion
def _shapes(bert: Bert) -> Any:
  """The tree of its parameters, of shapes."""
  return jax.eval_shape(lambda: bert.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))['params'])


def check_params(bert: Bert, params: Any) -> None:
  """Raise ValueError unless the tree has the arrays of a `Bert`, of finite floating-point numbers."""
  shapes = {path: leaf.shape for path, leaf in folders.by_path(_shapes(bert)).items()}
  folders.check_arrays(folders.by_path(params), shapes)


def named(params: Any) -> dict[str, np.ndarray]:
  """Our tree, or a gradient of its shape, by the names of `BertForMaskedLM.named_parameters`."""
  by_name: dict[str, np.ndarray] = {}
  for path, leaf in folders.by_path(params).items():
    # torch multiplies by the transpose.
    values = np.asarray(leaf).T if path.endswith('kernel') else np.asarray(leaf)
    names = _their_names(path)
    by_name |= zip(names, np.split(values, len(names)))
  return by_name


def _their_names(path: str) -> list[str]:
  """Their name of an array of ours; their three of ours for queries, keys and values."""
  # All names in one pass, so that none is replaced within another.
  name = re.sub('|'.join(_NAMES), lambda ours: _NAMES[ours[0]], path)
  return [name.replace('qkv', f'attention.self.{part}') for part in _QKV] if '.qkv.' in name else [name]


def state_of(params: Any) -> dict[str, np.ndarray]:
  """All arrays of `BertForMaskedLM`.

  >>> bert = Bert(num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=5, dropout_rate=0.1)
  >>> params = bert.init(jax.random.key(0), jnp.zeros((1, 5), jnp.int32))['params']
  >>> state_of(params)['bert.encoder.layer.0.intermediate.dense.weight'].shape
  (16, 8)
  """
  by_name = named(params)
  return {**by_name, TOKEN_TYPES: np.zeros_like(by_name[_WORDS][:1])}


def params_of(bert: Bert, state: Mapping[str, np.ndarray], mask_id: int) -> dict[str, Any]:
  """Our parameters from the arrays of a `BertForMaskedLM` whose [MASK] has id `mask_id`.

  Token ids above `mask_id` fall by one, since here [MASK] comes last. The embedding of token type 0 is added to every
  position.

  Raises:
    ValueError: an array is missing, unknown, of another shape or type, or not finite.

  >>> bert = Bert(num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=5, dropout_rate=0.1)
  >>> params = bert.init(jax.random.key(0), jnp.zeros((1, 5), jnp.int32))['params']
  >>> same = params_of(bert, state_of(params), mask_id=4)
  >>> jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()), params, same))
  True
  """
  state = {name: values for name, values in state.items() if not _UNREAD.match(name)}
  num_layers = len({name.split('.')[3] for name in state if name.startswith(_LAYER)})
  if num_layers != bert.num_layers:
    raise ValueError(f'it has {num_layers} layers; valid is num_hidden_layers of config.json, {bert.num_layers}')
  tree = _shapes(bert)
  expected = named(jax.tree.map(lambda leaf: np.broadcast_to(np.float32(0), leaf.shape), tree))
  shapes = {name: values.shape for name, values in expected.items()}
  folders.check_arrays(state, {**shapes, TOKEN_TYPES: ('token types', bert.width)})
  flat: dict[str, np.ndarray] = {}
  for path in folders.by_path(tree):
    values = np.concatenate([state[name] for name in _their_names(path)])
    flat[path] = np.ascontiguousarray(values.T if path.endswith('kernel') else values)
  order = np.append(np.delete(np.arange(bert.num_tokens + 1), mask_id), mask_id)
  for path in ('word_embedding.embedding', 'output_bias'):
    flat[path] = flat[path][order]
  positions, first_type = flat['position_embedding'], state[TOKEN_TYPES][0]
  if first_type.any():
    # A sum of half precision would round more than either.
    wide = np.promote_types(positions.dtype, np.float32)
    flat['position_embedding'] = positions.astype(wide) + first_type
  return jax.tree.unflatten(jax.tree.structure(tree), flat.values())
