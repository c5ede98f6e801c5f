"""Names of the package that were guessed."""

import ast
import difflib
import functools
import pkgutil
import re
from typing import Any

import hmm_jax

# Parts of names in other libraries, and the name here.
_SYNONYMS = {
  'save': 'save',
  'from_pretrained': 'load',
  'load': 'load',
  'smooth': 'forward_backward',
  'predict_proba': 'forward_backward',
  'posterior': 'forward_backward',
  'log_prob': 'forward_backward',
  'loglik': 'forward_backward',
  'log_lik': 'forward_backward',
  'marginal': 'forward_backward',
  'filter': 'last_filtered_probs',
  'decode': 'most_likely_states',
  'viterbi': 'most_likely_states',
  'generat': 'sample',
  'simulat': 'sample',
  'entropy': 'entropies',
  'transformer': 'Bert',
  'train': 'pretrain',
  'fit': 'tune',
  'prompt': 'tune',
  'peft': 'tune',
  'accuracy': 'tune',
  'num_params': 'Pretrained',
  'count_params': 'Pretrained',
  'assumption': 'theory.non_degeneracy',
  'conditions': 'theory.non_degeneracy',
  'batches': 'sample_corpus',
  'evaluat': 'tune',
  'logits': 'token_probs',
  'hidden_states': 'activations',
  'cache': 'activations',
  'hook': 'with_activations',
  'patch': 'with_activations',
  'interven': 'with_activations',
  'steer': 'with_activations',
}
# Less is no more than a common word that is shared.
_LEAST = 0.3


def _stems(text: str) -> frozenset[str]:
  """The stems of words, such as those of 'filtered_probs' and 'ExactModel'."""
  words = re.findall(r'[A-Z]?[a-z]+|[A-Z]+(?![a-z])', text)
  return frozenset(re.sub('(ing|ed|s)$', '', word.lower())[:6] for word in words if len(word) > 2)


@functools.cache
def _public() -> dict[str, tuple[frozenset[str], frozenset[str]]]:
  """The stems of the name and of the docstring of every public function and class, by its place."""
  stems = {}
  for module in pkgutil.walk_packages(hmm_jax.__path__, 'hmm_jax.'):
    spec: Any = module.module_finder.find_spec(module.name, None)
    for node in ast.parse(spec.loader.get_source(module.name)).body:
      if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and '._' not in f'{module.name}.{node.name}':
        home = 'hmm_jax' if node.name in dir(hmm_jax) else module.name
        stems[f'{home}.{node.name}'] = _stems(node.name), _stems(f'{ast.get_docstring(node)} {module.name}')
  return stems


def did_you_mean(name: str) -> str:
  """The end of a sentence with the nearest public functions and classes, wherever they live; '' if none is near.

  A word counts by how few share it, in a name three times as much as in a docstring, and twice at the top.
  """
  public = _public()
  meant = [f'hmm_jax.{here}' for word, here in _SYNONYMS.items() if word in name.lower()]
  stems = _stems(name)
  shares = {stem: 1 + sum(stem in own | text for own, text in public.values()) for stem in stems}

  def nearness(place: str) -> float:
    home, _, last = place.rpartition('.')
    own, text = public[place]
    total = sum(1 / shares[stem] for stem in stems & text)
    total += sum(3 / shares[stem] ** 0.5 for stem in stems & own) / (len(own) or 1)
    return total * (1 + (home == 'hmm_jax')) + 9 * (last.lower() == name.lower())

  best = sorted(public, key=nearness, reverse=True)
  # What shares words is the more noise the better the first is.
  near = [*meant, *(place for place in best if nearness(place) > max(_LEAST, nearness(best[0]) / 2))]
  if not near:
    # A word that is misspelt.
    places = {place.rpartition('.')[2]: place for place in public}
    near = [places[each] for each in difflib.get_close_matches(name, places)]
  near = list(dict.fromkeys(near))[:3]
  return f'; did you mean {" or ".join(near)}?' if near else ''
