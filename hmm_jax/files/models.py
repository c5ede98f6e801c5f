"""A model in a folder that Hugging Face's transformers open, with its distribution."""

import pathlib
from typing import Any

import jax

from hmm_jax._support import arguments, float64
from hmm_jax.distributions.files import load_distribution, readable, save_distribution
from hmm_jax.distributions.hmm import HMM
from hmm_jax.distributions.labelled import Process
from hmm_jax.distributions.memory_hmm import MemoryHMM
from hmm_jax.files import folders, hugging_face
from hmm_jax.files.folders import Path
from hmm_jax.models.bert import BertModel
from hmm_jax.models.model import ExactModel, MaskedLM

_MASK, _WEIGHTS, _CAUSAL = '[MASK]', 'model.safetensors', 'causal.json'
_FILES = _WEIGHTS, _CAUSAL, 'README.md', 'config.json', 'distribution.json', 'tokenizer.json', 'tokenizer_config.json'
_CARD = """---
library_name: transformers
---
{card}
A {kind} language model on token ids: tokens "0" to "{last}" are the vocabulary, [MASK] is id {num_tokens}.
`hmm_jax.load` returns it with the distribution in `distribution.json`, if there is one.

```python
from transformers import {auto}, AutoTokenizer
model, tokenizer = {auto}.from_pretrained(directory), AutoTokenizer.from_pretrained(directory)
logits = model(**tokenizer('[MASK] 0 1', return_tensors='pt')).logits[..., :{num_tokens}]  # [MASK] is no target
```
"""
# The kind and the class that opens it, for masked and for causal models.
_KINDS = ('masked', 'AutoModelForMaskedLM'), ('causal', 'AutoModelForCausalLM')


def save(
  directory: Path,
  model: MaskedLM,
  params: Any,
  distribution: HMM | MemoryHMM | Process | None = None,
  card: str = '',
  *,
  exist_ok: bool = False,
) -> None:
  """Write a model to a new folder, which Hugging Face's transformers, PEFT and TransformerLens open.

  A BERT becomes a `BertForMaskedLM`, a causal one a `BertLMHeadModel` (`config.json`, `model.safetensors`), with a
  tokenizer of words "0", "1", ... and [MASK]. An exact model becomes its distribution.

  Args:
    directory: a new or an empty folder; it is written whole or not at all.
    model: a `BertModel` or an `ExactModel`.
    params: its parameters.
    distribution: what it was pretrained on, for `distribution.json`.
    card: text for the folder's README.md, in front of how to open it.
    exist_ok: replace a model that was saved in the folder, if nothing else is in it.

  Raises:
    ValueError: the model is of another class, the parameters do not fit it, or the folder is not empty.
    OSError: the folder cannot be written.

  >>> import tempfile, jax.numpy as jnp, hmm_jax as hj
  >>> bert = hj.Bert(num_tokens=4, num_layers=1, width=8, num_heads=2, ffn_width=16, max_positions=5, dropout_rate=0.0)
  >>> params = bert.init(jax.random.key(0), jnp.zeros((1, 5), jnp.int32))['params']
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   save(f'{folder}/model', hj.BertModel(bert), params)
  ...   model, same, distribution = load(f'{folder}/model')
  >>> model == hj.BertModel(bert), distribution
  (True, None)
  """
  is_path = isinstance(directory, str) or hasattr(directory, '__fspath__')
  arguments.require(is_path, 'directory', directory, 'a path, before the model')
  params = arguments.model_params(params)
  if isinstance(model, ExactModel):
    if not isinstance(params, (HMM, MemoryHMM, Process)):
      raise ValueError(f'params are a {type(params).__name__}; valid is a distribution, of an ExactModel')
    distribution = params
  elif not isinstance(model, BertModel):
    raise ValueError(f'model is a {type(model).__name__}; valid are a BertModel and an ExactModel')
  valid = 'a distribution, or T [V, S, S], behind the params'
  arguments.require(not isinstance(distribution, dict), 'distribution', distribution, valid)
  if distribution is not None:
    arguments.check_vocabulary(model, distribution)
  with folders.new_folder(directory, _FILES if exist_ok else ()) as folder:
    if distribution is not None:
      save_distribution(folder / 'distribution.json', distribution)
    if isinstance(model, BertModel):
      _write_bert(folder, model, params)
      kind, auto = _KINDS[model.causal]
      last = model.num_tokens - 1
      card = _CARD.format(card=card, kind=kind, auto=auto, num_tokens=model.num_tokens, last=last)
    elif model.causal:
      folders.write_json(folder / _CAUSAL, {'causal': True})
    (folder / 'README.md').write_text(card, 'utf-8', newline='\n')


def _write_bert(folder: pathlib.Path, model: BertModel, params: Any) -> None:
  hugging_face.check_params(model.bert, params)
  folders.write_arrays(folder / _WEIGHTS, hugging_face.state_of(jax.device_get(params)))
  folders.write_json(folder / 'config.json', hugging_face.config_of(model.bert))
  folders.write_json(folder / 'tokenizer.json', _tokenizer(model.num_tokens))
  # Without these fields, AutoTokenizer makes a tokenizer that adds [CLS] and [SEP].
  of_class = {'tokenizer_class': 'PreTrainedTokenizerFast', 'mask_token': _MASK}
  folders.write_json(folder / 'tokenizer_config.json', {**of_class, 'model_max_length': model.bert.max_positions})


def _tokenizer(num_tokens: int) -> dict[str, Any]:
  """Words between white space; one that is no token is unknown, hence [MASK]: TransformerLens 4 tries the word 'a'."""
  flags = dict.fromkeys(('single_word', 'lstrip', 'rstrip', 'normalized'), False)
  vocabulary = {str(token): token for token in range(num_tokens)} | {_MASK: num_tokens}
  return {
    'version': '1.0',
    'added_tokens': [{'id': num_tokens, 'content': _MASK, 'special': True, **flags}],
    'pre_tokenizer': {'type': 'WhitespaceSplit'},
    'model': {'type': 'WordLevel', 'vocab': vocabulary, 'unk_token': _MASK},
  }


def load(directory: Path) -> tuple[MaskedLM, Any, HMM | MemoryHMM | Process | None]:
  """The model of a folder, its parameters, and the distribution it was pretrained on or None.

  What `save` wrote comes back to the bit, as numpy arrays; a distribution in float32 if every entry is exact in it. A
  `BertForMaskedLM` that was trained elsewhere is read too, and a `BertLMHeadModel`, whose texts then begin with [MASK].
  The embedding of its first token type is added to the positions. If its [MASK], by the tokenizer, is not the last
  token, the ids above it fall by one. Without a tokenizer the last token is taken for [MASK].

  Raises:
    ValueError: one sentence with the file or the field that is missing, damaged or of another architecture.
    OSError: there is no such folder, or a file cannot be opened.

  >>> import tempfile, hmm_jax as hj
  >>> from hmm_jax.distributions import processes
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   save(f'{folder}/exact', hj.ExactModel(num_tokens=6), processes.dishonest_casino())
  ...   model, hmm, _ = load(f'{folder}/exact')
  >>> model, hmm.num_states
  (ExactModel(num_tokens=6, causal=False), 2)
  """
  folder = pathlib.Path(directory).expanduser()
  path = folder / 'distribution.json'
  distribution = jax.tree.map(float64.narrowest, load_distribution(path)) if path.exists() else None
  if distribution is not None and not any((folder / name).exists() for name in ('config.json', _WEIGHTS)):
    return ExactModel(distribution.num_tokens, (folder / _CAUSAL).exists()), distribution, distribution
  config = folders.read_json(folder / 'config.json')
  bert = hugging_face.bert_of(config)
  if distribution is not None:
    arguments.check_vocabulary(bert, distribution)
  mask_id, state = _mask_id(folder, bert.num_tokens), folders.read_arrays(folder / _WEIGHTS)
  with readable(folder / _WEIGHTS, 'the arrays of a model with this config.json'):
    params = hugging_face.params_of(bert, state, mask_id)
  return BertModel(bert), params, distribution


def _mask_id(folder: pathlib.Path, last: int) -> int:
  """The id of [MASK] by the tokenizer of a folder, `last` if it has none."""
  path, words = folder / 'tokenizer.json', folder / 'vocab.txt'
  if words.exists() and not path.exists():
    valid = 'tokenizer.json beside it, which `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)` writes'
    raise ValueError(f'{str(words)!r} is a vocabulary alone; valid is {valid}')
  if not path.exists():
    return last
  content, of_class = folders.read_json(path), folder / 'tokenizer_config.json'
  mask = (folders.read_json(of_class) if of_class.exists() else {}).get('mask_token') or _MASK
  if isinstance(mask, dict):
    mask = mask.get('content')
  with readable(path, "a tokenizer with 'content' and 'id' of its added tokens"):
    ids = {token['content']: token['id'] for token in content.get('added_tokens') or []}
    ids |= content.get('model', {}).get('vocab', {})
  mask_id: Any = ids.get(str(mask))
  arguments.check_size(f'the id of {mask} in the tokenizer of {str(folder)!r}', mask_id, 0, last)
  return mask_id
