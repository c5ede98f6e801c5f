"""Names of the package that were guessed."""

import ast
import difflib
import functools
import pkgutil
import re
from typing import Any, NamedTuple

import hmm_jax

# Words of other libraries, and a name of this one.
_SYNONYMS = {
  'train': 'pretrain',
  'fit': 'tune',
  'transformer': 'bert',
  'generat': 'sample',
  'simulat': 'sample',
  'decode': 'most_likely_states',
  'evaluat': 'tuned',
  'cache': 'activations',
  'hook': 'activations',
  'logits': 'token_probs',
}
# Less is no more than a common word that is shared.
_LEAST = 0.3


class _Public(NamedTuple):
  """The place of a public function or class, and the stems of its name and of its docstring."""

  place: str
  name: frozenset[str]
  text: frozenset[str]


def _stems(text: str) -> frozenset[str]:
  """The stems of words, such as those of 'filtered_probs' and 'ExactModel'."""
  words = re.findall(r'[A-Z]?[a-z]+|[A-Z]+(?![a-z])', text)
  return frozenset(re.sub('(ing|ed|s)$', '', word.lower())[:6] for word in words if len(word) > 2)


@functools.cache
def _public() -> dict[str, _Public]:
  """Every public function and class by its place, which is the package for those that it offers."""
  found = {}
  inner = {module.name for module in pkgutil.iter_modules(hmm_jax.__path__)}
  for module in pkgutil.walk_packages(hmm_jax.__path__, 'hmm_jax.'):
    spec: Any = module.module_finder.find_spec(module.name, None)
    for node in ast.parse(spec.loader.get_source(module.name)).body:
      if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or '._' in f'{module.name}.{node.name}':
        continue
      home = 'hmm_jax' if node.name in set(dir(hmm_jax)) - inner else module.name
      text = f'{ast.get_docstring(node)} {module.name}'
      found[f'{home}.{node.name}'] = _Public(f'{home}.{node.name}', _stems(node.name), _stems(text))
  return found


def did_you_mean(name: str) -> str:
  """The end of a sentence with the nearest public functions and classes, wherever they live; '' if none is near.

  A word of the guess counts by how few of them share it, and in a name three times as much as in a docstring.
  """
  known = _public().values()
  meant = [synonym for word, synonym in _SYNONYMS.items() if word in name.lower()]
  stems = _stems(' '.join([name, *meant]))
  rarity = {stem: 1 / (1 + sum(stem in each.name | each.text for each in known)) for stem in stems}
  close = difflib.get_close_matches(name, [each.place.rpartition('.')[2] for each in known], cutoff=0.75)

  def nearness(each: _Public) -> float:
    home, _, own = each.place.rpartition('.')
    of_name = sum(3 * rarity[stem] ** 0.5 for stem in stems & each.name) / max(len(each.name), 1)
    of_text = sum(rarity[stem] for stem in stems & each.text)
    offered = 2 if home == 'hmm_jax' else 1
    return offered * (of_name + of_text) + (own in close) + 9 * (own.lower() == name.lower())

  best = sorted(known, key=nearness, reverse=True)[:3]
  near = [each.place for each in best if nearness(each) > _LEAST]
  return f'; did you mean {" or ".join(near)}?' if near else ''
