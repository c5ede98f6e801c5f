"""Folders that are written whole or not at all, and what is read of them without trust."""

from collections.abc import Collection, Iterator, Mapping
import contextlib
import json
import os
import pathlib
import shutil
from typing import Any
import uuid

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from hmm_jax._support import arguments
from hmm_jax.distributions.files import open_regular, readable

Path = str | pathlib.Path
# Bytes of a file of JSON, and of arrays: a model of 17 billion float32 parameters.
_MAX_JSON, _MAX_ARRAYS = 2**27, 2**36
# numpy alone does not know bfloat16. Integers number positions, which no model of ours reads.
_DTYPES = {'F64': np.float64, 'F32': np.float32, 'F16': np.float16, 'BF16': jnp.bfloat16, 'I64': np.int64}


@contextlib.contextmanager
def new_folder(directory: Path, replaces: Collection[str] = ()) -> Iterator[pathlib.Path]:
  """A folder beside `directory` that becomes it at the end of the block, or is removed if the block fails.

  Raises ValueError if `directory` exists and is no folder, or has files other than those it `replaces`.
  """
  # A link leads to the folder that it names.
  path = pathlib.Path(os.path.realpath(os.path.expanduser(directory)))
  if path.exists() and not (path.is_dir() and {file.name for file in path.iterdir()}.issubset(replaces)):
    raise ValueError(f'{str(path)!r} exists; valid is a new or an empty folder')
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.with_name(f'.{path.name}.{uuid.uuid4().hex}.partial')
  partial.mkdir()
  try:
    yield partial
    for name in replaces:
      (path / name).unlink(missing_ok=True)
    partial.replace(path)
  except BaseException:
    shutil.rmtree(partial)
    raise


def write_json(path: pathlib.Path, content: Any) -> None:
  """Write JSON with two spaces for each level, as the other tools do."""
  path.write_text(json.dumps(content, indent=2) + '\n', 'utf-8', newline='\n')


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """The object of a JSON file; raises ValueError with the path if it is something else or damaged."""
  with readable(path, 'a JSON object'), open_regular(path, _MAX_JSON) as file:
    return {**json.loads(file.read())}


def by_path(tree: Any) -> dict[str, Any]:
  """The leaves of a tree by their paths, such as 'layers_0.ffn_in.kernel'."""
  leaves = jax.tree.leaves_with_path(tree)
  return {jax.tree_util.keystr(path, simple=True, separator='.'): leaf for path, leaf in leaves}


def check_arrays(arrays: Mapping[str, Any], shapes: Mapping[str, tuple[Any, ...]]) -> None:
  """Raise ValueError unless the arrays have these names and shapes, and floating-point numbers, finite in float32."""
  for name in {**shapes, **arrays}:
    if name not in arrays or name not in shapes:
      raise ValueError(f'{name} is {"missing" if name in shapes else "unknown"}; valid are {", ".join(shapes)}')
    arguments.check_shape(name, arrays[name], *shapes[name])
    if not jnp.issubdtype(arrays[name].dtype, jnp.floating):
      raise ValueError(f'{name} is of type {arrays[name].dtype}; valid is a floating-point one')
    # Larger ones would be infinite where the model is computed.
    with np.errstate(over='ignore'):
      arguments.check_finite(f'float32 numbers of {name}', np.asarray(arrays[name], np.float32))


def write_arrays(path: pathlib.Path, arrays: dict[str, np.ndarray]) -> None:
  """Write arrays as safetensors, with the metadata by which Hugging Face knows its own."""
  whole = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
  # safetensors writes a transposed view in memory order, and says nothing.
  # `save_file` would leave a file that only its owner reads.
  path.write_bytes(safetensors.numpy.save(whole, metadata={'format': 'pt'}))


def read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
  """The arrays of a safetensors file; raises ValueError with the path if it is damaged or has other numbers."""
  with readable(path, f'an intact file of {", ".join(_DTYPES)} arrays'), open_regular(path, _MAX_ARRAYS) as file:
    return {
      name: np.frombuffer(view['data'], _DTYPES[view['dtype']]).reshape(view['shape'])
      for name, view in safetensors.deserialize(file.read())
    }
