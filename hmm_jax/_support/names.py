"""Names of the package that were guessed."""

import difflib
import pkgutil
import re
from typing import Any

import hmm_jax


def _words(name: str) -> set[str]:
  """The words of a name that tell it, in lower case and without a plural."""
  words = re.findall(r'[A-Z]?[a-z]+|[A-Z]+(?![a-z])', name)
  return {word.lower().removesuffix('s') for word in words} - {'from', 'to', 'with', 'in'}


def did_you_mean(name: str) -> str:
  """The end of a sentence with the nearest public functions and classes, wherever they live; '' if none is near."""
  places = {public: f'hmm_jax.{public}' for public in dir(hmm_jax)}
  modules = pkgutil.walk_packages(hmm_jax.__path__, 'hmm_jax.')
  for module in (module for module in modules if '._' not in module.name):
    spec: Any = module.module_finder.find_spec(module.name, None)
    for public in re.findall(r'^(?:def|class) ([A-Za-z]\w*)', spec.loader.get_source(module.name), re.MULTILINE):
      places.setdefault(public, f'{module.name}.{public}')
  of_package = {public: _words(public) for public in dir(hmm_jax)}
  # What is all of its name, as `tune` is of `tune_prompt`, comes before what shares a word.
  whole = [public for public in of_package if public.lower() in _words(name)]
  sharing = [public for public, words in of_package.items() if words & _words(name)]
  same = [name] if name in places else []
  near = [*same, *whole, *sharing, *([] if same else difflib.get_close_matches(name, places))]
  near = [places[each] for each in dict.fromkeys(near)][:3]
  return f'; did you mean {" or ".join(near)}?' if near else ''
