"""Hugging Face's `BertForMaskedLM` with the weights of our BERT, and its step of pretraining."""

from collections.abc import Callable
import os
import re
from typing import Any

from flax.traverse_util import flatten_dict
import jax
import numpy as np
import torch
import transformers

from experiments.settings.groups import PretrainSettings
from hmm_jax.bert import Bert

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
# Inputs and labels [B, T]; a label of -100 does not count, as everywhere in torch.
Batch = tuple[np.ndarray, np.ndarray]


def config_of(bert: Bert, attention: str = 'eager') -> transformers.BertConfig:
  """The Hugging Face config of the same architecture, dropout included; `attention` is eager or sdpa."""
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

  A tree of scanned layers has no such names.
  """
  found: dict[str, np.ndarray] = {}
  for path, leaf in flatten_dict(params, sep='.').items():
    # torch multiplies by the transpose.
    values = np.asarray(leaf).T if path.endswith('kernel') else np.asarray(leaf)
    # All names in one pass, so that none is replaced within another.
    name = re.sub('|'.join(_NAMES), lambda ours: _NAMES[ours[0]], path)
    parts = zip(('query', 'key', 'value'), np.split(values, 3)) if '.qkv.' in name else [('', values)]
    found |= {name.replace('qkv', f'attention.self.{part}'): rows for part, rows in parts}
  return found


def model_of(bert: Bert, params: Any, attention: str = 'eager') -> transformers.BertForMaskedLM:
  """Their model with our weights, in evaluation mode."""
  model = transformers.BertForMaskedLM(config_of(bert, attention)).eval()
  with torch.no_grad():
    model.get_parameter(TOKEN_TYPES).zero_()
    for name, value in named(params).items():
      model.get_parameter(name).copy_(torch.tensor(value))
  return model


def loss_of(model: transformers.BertForMaskedLM, batch: Batch) -> float:
  """The masked-LM loss of their logits without dropout, in the type of the model's parameters.

  As in our loss, [MASK], the last token, is no possible target; in their own training step it is one.
  """
  inputs, labels = map(torch.tensor, batch)
  with torch.no_grad():
    logits = model.eval()(input_ids=inputs).logits[..., :-1]
  return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).item()


def train_steps(
  model: transformers.BertForMaskedLM, batches: list[Batch], p: PretrainSettings, compiled: bool, half_precision: bool
) -> Callable[[], float]:
  """A call that takes a step on each batch: AdamW and a clipped gradient, where JAX's own models are.

  Batches lie on the device beforehand.
  """
  torch.set_num_threads(os.cpu_count() or 1)
  device = 'cuda' if jax.default_backend() == 'gpu' else 'cpu'
  torch.nn.Module.to(model, device).train()
  forward = torch.compile(model) if compiled else model
  adamw: dict[str, Any] = dict(lr=p.learning_rate, betas=(0.9, p.b2), weight_decay=p.weight_decay)
  optimizer = torch.optim.AdamW(model.parameters(), **adamw, fused=True)
  on_device = [[torch.tensor(x, device=device) for x in batch] for batch in batches]

  def call() -> float:
    for inputs, labels in on_device:
      optimizer.zero_grad(set_to_none=True)
      with torch.autocast(device, torch.bfloat16, enabled=half_precision):
        loss = forward(input_ids=inputs, labels=labels).loss
      loss.backward()
      torch.nn.utils.clip_grad_norm_(model.parameters(), p.clip_norm)
      optimizer.step()
    return loss.item()  # Waits for the device.

  return call
