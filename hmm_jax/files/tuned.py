"""A tuned prompt as a PEFT adapter, with its head and its model beside it."""

import dataclasses
import pathlib
from typing import Any

import jax
import numpy as np

from hmm_jax._support import arguments
from hmm_jax.distributions.files import readable
from hmm_jax.files import folders, models
from hmm_jax.files.folders import Path
from hmm_jax.models.bert import BertModel
from hmm_jax.models.model import MaskedLM
from hmm_jax.tuning import heads
from hmm_jax.tuning.tuner import Prompt, Tuner

# The folder of the frozen model, inside that of the prompt.
_MODEL = 'model'
_HEADS: dict[str, Any] = {kind.__name__: kind for kind in (heads.Linear, heads.Attention, heads.OfficialAttention)}
_PROMPT = 'prompt_embeddings'
_SOFTMAX = 'temperature', 1.0
_VALID = 'that of a folder of `Tuned.save`'
# PEFT has no task of masked prediction; that of features leaves the model's own output as it is.
_ADAPTER = {
  'peft_type': 'PROMPT_TUNING',
  'task_type': 'FEATURE_EXTRACTION',
  'base_model_name_or_path': _MODEL,
  'inference_mode': True,
}


def save_tuned(
  directory: Path, tuner: Tuner, params: Any, trainable: dict[str, Any], accuracy: float, hidden: int = 0
) -> None:
  """Write what was tuned for one task to a new folder.

  `model` is a folder of `models.save`; `head.json` has the fields, `head.safetensors` the arrays of the head, and
  `adapter_model.safetensors` the prompt [P, E]. Only a prefix on a masked BERT is a PEFT adapter, by
  `adapter_config.json`: PEFT puts rows first, and a prompt on a causal model stands behind its first [MASK].

  Raises ValueError if the model or the head is of a class of your own, a number is not finite, or the folder is not
  empty; OSError if it cannot be written.
  """
  head: Any = tuner.head
  model: Any = tuner.model
  prompt = tuner.prompt
  if type(head) not in _HEADS.values():
    raise ValueError(f'the head is {head!r}; valid are {", ".join(_HEADS)}')
  arguments.check_finite('head and prompt', trainable)
  with folders.new_folder(directory) as folder:
    models.save(folder / _MODEL, model, params)
    fields = {'head': type(head).__name__, 'fields': dataclasses.asdict(head), 'accuracy': accuracy, 'hidden': hidden}
    folders.write_json(folder / 'head.json', {**fields, 'prompt': prompt and dataclasses.asdict(prompt)})
    folders.write_arrays(folder / 'head.safetensors', folders.by_path(trainable['head']))
    if prompt is not None:
      folders.write_arrays(folder / 'adapter_model.safetensors', {_PROMPT: np.asarray(trainable['prompt'])})
      if isinstance(model, BertModel) and not model.causal and prompt.place == 0:
        folders.write_json(folder / 'adapter_config.json', {**_ADAPTER, 'num_virtual_tokens': prompt.length})


def load_tuned(directory: Path) -> tuple[Tuner, Any, dict[str, Any], float, int]:
  """Read a folder of `save_tuned`: the tuner, the model's parameters, the trained tree, accuracy and hidden position.

  Raises ValueError with the file that is missing parts or damaged; OSError if there is no such folder or file.
  """
  folder = pathlib.Path(directory).expanduser()
  model, params, _ = models.load(folder / _MODEL)
  content = folders.read_json(folder / 'head.json')
  arrays = {f'head.{name}': values for name, values in folders.read_arrays(folder / 'head.safetensors').items()}
  with readable(folder, _VALID):
    tuner = _tuner(model, content)
    if tuner.prompt:
      arrays['prompt'] = folders.read_arrays(folder / 'adapter_model.safetensors')[_PROMPT]
    trainable = _trainable(tuner, params, arrays)
    # Folders of earlier versions do not name the hidden token, which was the first.
    return tuner, params, trainable, content['accuracy'], content.get('hidden', 0)


def _tuner(model: MaskedLM, content: dict[str, Any]) -> Tuner:
  # Fields of earlier versions; the shapes of arrays tell if there were classes of tokens.
  fields = {name: x for name, x in content['fields'].items() if name != 'token_classes' and (name, x) != _SOFTMAX}
  prompt = content['prompt']
  return Tuner(model, _HEADS[content['head']](**fields), prompt and Prompt(**prompt))


def _trainable(tuner: Tuner, params: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
  """The arrays as the tree that this tuner trains. Raises ValueError if they are not those of such a tree."""
  model: Any = tuner.model
  # Only this array tells the length of the texts.
  longest = len(arrays['head.positions']) if 'head.positions' in arrays else model.max_positions
  length = longest - (tuner.prompt.length if tuner.prompt else 0)
  # A head is trained on outputs, a prompt on texts.
  inputs = (1, length) if tuner.prompt else (1, length, model.num_tokens)
  init = lambda: tuner.init(jax.random.key(0), params, jax.ShapeDtypeStruct(inputs, np.int32))
  expected = jax.eval_shape(init)
  shapes = {name: leaf.shape for name, leaf in folders.by_path(expected).items()}
  folders.check_arrays(arrays, shapes)
  return jax.tree.unflatten(jax.tree.structure(expected), [arrays[name] for name in shapes])
