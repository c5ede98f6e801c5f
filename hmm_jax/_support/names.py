"""Names of the package that were guessed."""

import difflib
import pkgutil
import re
from typing import Any

import hmm_jax


def did_you_mean(name: str) -> str:
  """The end of a sentence with the nearest public functions and classes, wherever they live; '' if none is near."""
  places = {public: f'hmm_jax.{public}' for public in dir(hmm_jax)}
  for module in pkgutil.walk_packages(hmm_jax.__path__, 'hmm_jax.'):
    spec: Any = module.module_finder.find_spec(module.name, None)
    for public in re.findall(r'^(?:def|class) ([A-Za-z]\w*)', spec.loader.get_source(module.name), re.MULTILINE):
      places.setdefault(public, f'{module.name}.{public}')
  near = [name] if name in places else difflib.get_close_matches(name, places)
  near = [places[each] for each in near]
  return f'; did you mean {" or ".join(near)}?' if near else ''
