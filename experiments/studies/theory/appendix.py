"""Search for cases that violate the claims of appendices A to C of the first text."""

from typing import Any

import jax
import numpy as np

from experiments.runtime.progress import Reporter
from experiments.studies.theory.settings import TheorySettings
from hmm_jax.theory.claims import adversary, lemmas
from hmm_jax.theory.claims.adversary import Search
from hmm_jax.theory.claims.lemmas import Claim
from hmm_jax.theory.claims.tables import in_floats
from hmm_jax.theory.exact.problem import generator

# The rounding error of an identity in floating point.
ROUNDING = 1e-8

_STATES, _ESSENTIAL, _MEMORY, _PROMPT = adversary.EDGES
# By the kind of cases assumed and by name: the claim in words, and a function from a case to its violation. The mended
# ones, "any start" and "i = 1" are ours, all others the paper's.
CLAIMS: dict[str, dict[str, tuple[str, Claim]]] = {
  _STATES: {
    'Proposition 3.4': ('G_i = W P[H_i | x_-i]', lemmas.proposition_3_4),
    'Claim A.1': ('P[H_i | x after it] = r D P[H_0 | x]', lemmas.claim_a_1),
    'Theorem 3.3': ('(A.1): b G_1 = mu P[H_0 | x] / r', lemmas.equation_a_1),
  },
  _ESSENTIAL: {
    'Lemma B.1': ('messages are joint laws, for any u', lemmas.lemma_b_1),
    'Lemma B.2': ('prompt and text part', lemmas.lemma_b_2),
    'Proof of 3.6': ('supp(A (u * P[H_1])) = H*', lemmas.reached_states),
    'Theorem 3.6': ('b G_2 = r mu P[H_0 | x], or both 0', lemmas.theorem_3_6),
  },
  _MEMORY: {
    'Proposition C.1': ('G_i = W P[M_J, H_i | x_-i]', lemmas.proposition_3_4),
    'Claim C.3': ('Theta recovers P[M_j*, H_i | x_-i]; norm 1', lemmas.claim_c_3),
    'Lemma C.2': ('q K(G_i) = P[H_i in H* | x_-i]', lemmas.lemma_c_2),
    'Lemma C.4': ('value = r mu P[M_j* | x] on I', lemmas.lemma_c_4),
  },
  _PROMPT: {
    'Lemma C.7': ('Lemma B.1 with a memory, (C.3)', lemmas.lemma_c_7),
    'Proposition C.8': ('the text after H_i is that after H_0', lemmas.proposition_c_8),
    'Proposition C.11': ('M_j* in supp(mu) after the prompt', lemmas.proposition_c_11),
    'Claim C.10': ('Claim C.3 after the prompt, i > 1', lemmas.claim_c_10),
    'Claim C.10, i = 1': ('the same at the prompt', lemmas.claim_c_10_at_the_prompt),
    'Claim C.12': ('supports after the prompt lie in those before', lemmas.claim_c_12),
    'Lemma C.9, after the prompt': ('score 1 on I', lemmas.lemma_c_9_after_the_prompt),
    'Lemma C.9, the prompt': ('score <= -1 with -2', lemmas.lemma_c_9_of_the_paper),
    'Lemma C.9, mended': ('score <= -1 with our beta', lemmas.lemma_c_9_corrected),
    'Lemma C.9, "precisely"': ('no other position scores 1', lemmas.lemma_c_9_precisely),
    'Lemma C.13': ('value = r mu P[M_j* | x], or both 0', lemmas.lemma_c_13),
    'Claim C.14': ('mu P[M_j* | z~, x] = mu P[M_j* | x] / r', lemmas.claim_c_14),
    'Claim C.15': ('mu P[M_j* | x] = 0 where z~ contradicts x', lemmas.claim_c_15),
    'Theorem C.6 with -2': ('the label on R', lemmas.theorem_c_6_of_the_paper),
    'Theorem C.6 with -2, at 0': ('the label on R where mu P = 0', lemmas.theorem_c_6_of_the_paper_at_0),
    'Theorem C.6, mended': ('the label on R', lemmas.theorem_c_6_corrected),
    'Theorem C.6, any start': ('with u times P[H_0] / P[H_1]: the posterior on R', lemmas.theorem_c_6_from_any_start),
  },
}
# Objectives of the worst-case search where the violation itself is flat.
GUIDES = {
  'Lemma C.9, the prompt': lemmas.claim_c_10_at_the_prompt,
  'Theorem C.6 with -2': lemmas.lemma_c_9_of_the_paper,
  'Theorem C.6 with -2, at 0': lemmas.lemma_c_9_of_the_paper,
}


def run(settings: TheorySettings, key: jax.Array, reporter: Reporter) -> list[dict[str, Any]]:
  """A record for each claim, and one for each denominator of the search for small gaps."""
  s, rng, rows = settings.appendix, generator(key), list[dict[str, Any]]()
  how = Search(*(getattr(s, field) for field in Search._fields))
  # All cases are drawn before the first search, which draws as well.
  cases = {kind: adversary.drawn_cases(kind, rng, how) for kind in CLAIMS}
  for kind, claims in CLAIMS.items():
    for claim, (says, violated_by) in claims.items():
      found = adversary.search(violated_by, cases[kind], rng, how, GUIDES.get(claim))
      rows.append({'claim': claim, 'says': says, 'assumed': kind, **_record(found, how)})
  rows += [_smallest_gap(denominator, rng, how) for denominator in s.gap_denominators]
  reporter.say(f'appendix: {len(rows) - len(s.gap_denominators)} claims searched')
  return rows


def _record(found: adversary.Found, how: Search) -> dict[str, Any]:
  fails = [edge for edge, largest in found.edges.items() if largest > ROUNDING]
  return {
    'num_random': how.num_random,
    'num_steps': how.num_steps,
    'num_edge': how.num_edge,
    'largest_random': found.at_random,
    'largest_adversarial': found.adversarial,
    'exact': float(found.exact),
    'violated': found.exact != 0 or max(found.at_random, found.adversarial) > ROUNDING,
    'edges': ', '.join(found.edges),
    'fails_at': ', '.join(fails),
  }


def _smallest_gap(denominator: int, rng: np.random.Generator, how: Search) -> dict[str, Any]:
  """The least 1 - q^T K(G_i) beside an attended position, at random and by search."""
  how = how._replace(denominator=denominator)
  nearness = lambda case: -float(lemmas.smallest_gap(in_floats(case), how.length))
  drawn = [adversary.draw(_MEMORY, adversary.ASSUMED, rng, how) for _ in range(how.num_random)]
  nearest = max(drawn, key=nearness)
  _, found = adversary.climbed(nearness, nearest, rng, how)
  return {'gap_denominator': denominator, 'gap_random': -nearness(nearest), 'gap_adversarial': -found}
