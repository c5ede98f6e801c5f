"""Hugging Face's `BertForMaskedLM` with the numbers of our BERT, and its step of pretraining."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
import transformers

from hmm_jax.bert import Bert

# All tokens are of one type here, whose embedding is zero.
TOKEN_TYPES = 'bert.embeddings.token_type_embeddings.weight'
# Modules of a layer there, by our names; queries, keys and values are one matrix of ours.
_OF_A_LAYER = {
  'attention.output.dense': 'attention_out',
  'attention.output.LayerNorm': 'attention_norm',
  'intermediate.dense': 'ffn_in',
  'output.dense': 'ffn_out',
  'output.LayerNorm': 'ffn_norm',
}
# The label of what is not selected.
_IGNORED = -100

# Inputs, targets and which of them are selected.
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


def config_of(bert: Bert, attention: str = 'eager') -> transformers.BertConfig:
  """The same architecture there, dropout included; `attention` is eager or sdpa."""
  options: dict[str, Any] = {'attn_implementation': attention}  # Not among the fields of the class.
  return transformers.BertConfig(
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
    **options,
  )


def named(params: Any) -> dict[str, np.ndarray]:
  """Our tree, or a gradient of its shape, by the names of `BertForMaskedLM.named_parameters`.

  Raises ValueError for a tree of scanned layers, whose leaves have no names there.
  """
  if 'scanned' in params:
    raise ValueError('scan_layers is True; valid is a tree with a branch for each layer')
  params = jax.tree.map(np.asarray, params)
  modules = {
    'bert.embeddings.LayerNorm': params['embedding_norm'],
    'cls.predictions.transform.dense': params['transform'],
    'cls.predictions.transform.LayerNorm': params['transform_norm'],
  }
  for number in range(sum(name.startswith('layers_') for name in params)):
    layer, prefix = params[f'layers_{number}'], f'bert.encoder.layer.{number}'
    for index, name in enumerate(('query', 'key', 'value')):
      part = {leaf: np.split(values, 3, axis=-1)[index] for leaf, values in layer['qkv'].items()}
      modules[f'{prefix}.attention.self.{name}'] = part
    modules |= {f'{prefix}.{name}': layer[ours] for name, ours in _OF_A_LAYER.items()}
  out = {
    'bert.embeddings.word_embeddings.weight': params['word_embedding']['embedding'],
    'bert.embeddings.position_embeddings.weight': params['position_embedding'],
    'cls.predictions.bias': params['output_bias'],
  }
  for name, leaves in modules.items():
    out[f'{name}.weight'] = leaves['kernel'].T if 'kernel' in leaves else leaves['scale']
    out[f'{name}.bias'] = leaves['bias']
  return out


def model_of(bert: Bert, params: Any, attention: str = 'eager') -> transformers.BertForMaskedLM:
  """Their model holding our numbers, in evaluation mode."""
  model = transformers.BertForMaskedLM(config_of(bert, attention)).eval()
  theirs, ours = dict(model.named_parameters()), named(params)
  with torch.no_grad():
    theirs[TOKEN_TYPES].zero_()
    for name, value in ours.items():
      theirs[name].copy_(torch.tensor(value))
  return model


def loss_of(model: transformers.BertForMaskedLM, batch: Batch) -> float:
  """The masked-LM loss of their logits without dropout, in the type of the model's parameters.

  As in ours [MASK], the last token, is never a target and has no part in it; in a step of theirs it has.
  """
  arguments = _arguments(batch, 'cpu')
  with torch.no_grad():
    logits = model.eval()(input_ids=arguments['input_ids']).logits[..., :-1]
  return torch.nn.functional.cross_entropy(logits.flatten(0, 1), arguments['labels'].flatten()).item()


def _arguments(batch: Batch, device: str) -> dict[str, torch.Tensor]:
  inputs, targets, selected = batch
  named = {'input_ids': inputs, 'labels': np.where(selected, targets.astype(np.int64), _IGNORED)}
  return {name: torch.tensor(x, dtype=torch.int64, device=device) for name, x in named.items()}


def train_steps(
  model: transformers.BertForMaskedLM,
  batches: list[Batch],
  *,
  adamw: dict[str, Any],
  clip_norm: float,
  compiled: bool,
  half_precision: bool,
  device: str,
) -> Callable[[], float]:
  """A call that takes a step on each batch: AdamW and a clipped gradient. Batches lie on the device beforehand."""
  torch.nn.Module.to(model, device).train()
  forward = torch.compile(model) if compiled else model
  optimizer = torch.optim.AdamW(model.parameters(), **adamw)
  arguments = [_arguments(batch, device) for batch in batches]

  def call() -> float:
    for of_step in arguments:
      optimizer.zero_grad(set_to_none=True)
      with torch.autocast(device, torch.bfloat16, enabled=half_precision):
        loss = forward(**of_step).loss
      loss.backward()
      torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
      optimizer.step()
    return loss.item()  # Waits for the device.

  return call
