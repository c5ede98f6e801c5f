"""Names of the package that were guessed."""

import difflib
import pkgutil
import re
from typing import Any

import hmm_jax


def did_you_mean(name: str) -> str:
  """The end of a sentence with the nearest public functions and classes, wherever they live; '' if none is near."""
  places: dict[str, str] = {}
  for found in pkgutil.walk_packages(hmm_jax.__path__, 'hmm_jax.'):
    spec: Any = found.module_finder.find_spec(found.name, None)
    if '._' not in found.name:
      defined = re.findall(r'^(?:def|class) ([A-Za-z]\w*)', spec.loader.get_source(found.name), re.MULTILINE)
      places |= {each: f'{found.name}.{each}' for each in defined}
  places |= {each: f'hmm_jax.{each}' for each in dir(hmm_jax)}
  near = [places[each] for each in difflib.get_close_matches(name, places)]
  near = [places[name]] if name in places else near
  return f'; did you mean {" or ".join(near)}?' if near else ''
