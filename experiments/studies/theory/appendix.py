"""Every claim of appendices A to C of the first text, searched for a case that violates it."""

from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.runtime.progress import Reporter
from experiments.studies.theory.settings import TheorySettings
from hmm_jax.theory.claims import adversary, lemmas
from hmm_jax.theory.claims.adversary import Search
from hmm_jax.theory.claims.lemmas import Claim
from hmm_jax.theory.claims.tables import in_floats
from hmm_jax.theory.exact.problem import generator

# What floating point leaves of an identity.
ROUNDING = 1e-8


class Statement(NamedTuple):
  """A claim of the proofs.

  Attributes:
    claim: its name.
    says: it in words.
    kind: of the cases that it assumes.
    violated_by: by how much a case violates it.
    printed: whether it is the paper's and not ours.
    guide: what a search for the worst follows where `violated_by` is level.
  """

  claim: str
  says: str
  kind: str
  violated_by: Claim
  printed: bool = True
  guide: Claim | None = None


_STATES, _ESSENTIAL, _MEMORY, _PROMPT = adversary.EDGES
STATEMENTS = (
  Statement('Proposition 3.4', 'G_i = W P[H_i | x_-i]', _STATES, lemmas.proposition_3_4),
  Statement('Claim A.1', 'P[H_i | x after it] = r D P[H_0 | x]', _STATES, lemmas.claim_a_1),
  Statement('Theorem 3.3', '(A.1): b G_1 = mu P[H_0 | x] / r', _STATES, lemmas.equation_a_1),
  Statement('Lemma B.1', 'messages are joint laws, for any u', _ESSENTIAL, lemmas.lemma_b_1),
  Statement('Lemma B.2', 'prompt and text part', _ESSENTIAL, lemmas.lemma_b_2),
  Statement('Proof of 3.6', 'supp(A (u * P[H_1])) = H*', _ESSENTIAL, lemmas.reached_states),
  Statement('Theorem 3.6', 'b G_2 = r mu P[H_0 | x], or both 0', _ESSENTIAL, lemmas.theorem_3_6),
  Statement('Proposition C.1', 'G_i = W P[M_J, H_i | x_-i]', _MEMORY, lemmas.proposition_3_4),
  Statement('Claim C.3', 'Theta recovers P[M_j*, H_i | x_-i]; norm 1', _MEMORY, lemmas.claim_c_3),
  Statement('Lemma C.2', 'q K(G_i) = P[H_i in H* | x_-i]', _MEMORY, lemmas.lemma_c_2),
  Statement('Lemma C.4', 'value = r mu P[M_j* | x] on I', _MEMORY, lemmas.lemma_c_4),
  Statement('Lemma C.7', 'Lemma B.1 with a memory, (C.3)', _PROMPT, lemmas.lemma_c_7),
  Statement('Proposition C.8', 'the text after H_i is that after H_0', _PROMPT, lemmas.proposition_c_8),
  Statement('Proposition C.11', 'M_j* in supp(mu) after the prompt', _PROMPT, lemmas.proposition_c_11),
  Statement('Claim C.10', 'Claim C.3 after the prompt, i > 1', _PROMPT, lemmas.claim_c_10),
  Statement('Claim C.10, i = 1', 'the same at the prompt', _PROMPT, lemmas.claim_c_10_at_the_prompt, printed=False),
  Statement('Claim C.12', 'supports after the prompt lie in those before', _PROMPT, lemmas.claim_c_12),
  Statement('Lemma C.9, after the prompt', 'score 1 on I', _PROMPT, lemmas.lemma_c_9_after_the_prompt),
  Statement(
    'Lemma C.9, the prompt',
    'score <= -1 with -2',
    _PROMPT,
    lemmas.lemma_c_9_of_the_paper,
    guide=lemmas.claim_c_10_at_the_prompt,
  ),
  Statement('Lemma C.9, mended', 'score <= -1 with our beta', _PROMPT, lemmas.lemma_c_9_corrected, printed=False),
  Statement('Lemma C.9, "precisely"', 'no other position scores 1', _PROMPT, lemmas.lemma_c_9_precisely),
  Statement('Lemma C.13', 'value = r mu P[M_j* | x], or both 0', _PROMPT, lemmas.lemma_c_13),
  Statement('Claim C.14', 'mu P[M_j* | z~, x] = mu P[M_j* | x] / r', _PROMPT, lemmas.claim_c_14),
  Statement('Claim C.15', 'mu P[M_j* | x] = 0 where z~ contradicts x', _PROMPT, lemmas.claim_c_15),
  Statement(
    'Theorem C.6 with -2',
    'the label on R',
    _PROMPT,
    lemmas.theorem_c_6_of_the_paper,
    guide=lemmas.lemma_c_9_of_the_paper,
  ),
  Statement(
    'Theorem C.6 with -2, at 0',
    'the label on R where mu P = 0',
    _PROMPT,
    lemmas.theorem_c_6_of_the_paper_at_0,
    guide=lemmas.lemma_c_9_of_the_paper,
  ),
  Statement('Theorem C.6, mended', 'the label on R', _PROMPT, lemmas.theorem_c_6_corrected, printed=False),
  Statement(
    'Theorem C.6, any start',
    'with u times P[H_0] / P[H_1]: the posterior on R',
    _PROMPT,
    lemmas.theorem_c_6_from_any_start,
    printed=False,
  ),
)


def run(settings: TheorySettings, key: jax.Array, reporter: Reporter) -> list[dict[str, Any]]:
  """A record for each claim, and one for each denominator of the search for small gaps."""
  s, rng = settings.appendix, generator(key)
  how = Search(*(getattr(s, field) for field in Search._fields))
  cases = {kind: adversary.drawn_cases(kind, rng, how) for kind in adversary.EDGES}
  rows = [_searched(statement, cases[statement.kind], rng, how) for statement in STATEMENTS]
  rows += [_smallest_gap(denominator, rng, how) for denominator in s.gap_denominators]
  reporter.say(f'appendix: {len(STATEMENTS)} claims searched')
  return rows


def _searched(
  statement: Statement, cases: adversary.SampledCases, rng: np.random.Generator, how: Search
) -> dict[str, Any]:
  found = adversary.search(statement.violated_by, cases, rng, how, statement.guide)
  fails = [edge for edge, largest in found.edges.items() if largest > ROUNDING]
  return {
    'claim': statement.claim,
    'says': statement.says,
    'printed': statement.printed,
    'assumed': statement.kind,
    'length': how.length,
    'num_random': len(cases.assumed),
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
