"""Errors of the theory that the tests must notice."""

from mutant import Mutant

THEORY = [
  *(
    Mutant(name, module, old, new, (f'tests/theory_{file}_test.py', '-k', tests))
    for name, module, old, new, file, tests in (
      (
        "the paper's beta",
        'theory/recovery',
        'positions[: len(prompt), -1] = -1 - theta_HxV[states].sum(0).max()',
        'positions[: len(prompt), -1] = -2',
        'mutants',
        'right_is_not or beta',
      ),
      (
        'keys on the span of the others',
        'theory/recovery',
        'off_others = np.eye(hmm.num_tokens) - others @ others.T',
        'off_others = np.eye(hmm.num_tokens)',
        'recovery',
        'label_of_the_memory',
      ),
      (
        'a prompt that forgets what comes before the text',
        'theory/recovery',
        'u = (_over_cell(hmm, in_support[:, :1], cell) * by_state)[None]',
        'u = (_over_cell(hmm, in_support[:, :1], cell) * (by_state > 0))[None]',
        'scoring',
        'what_is_read',
      ),
      (
        'r_x without the evidence',
        'theory/scoring',
        'factor = mean * _prompt_scale(problem, prompt) * _ratio(loglik, prompted_loglik)',
        'factor = mean * _prompt_scale(problem, prompt)',
        'scoring',
        'what_is_read',
      ),
      (
        'r_x without the scale of the prompt',
        'theory/scoring',
        'return max(scales, default=1.0)',
        'return 1.0',
        'scoring',
        'what_is_read',
      ),
      (
        'r_x of positions outside of H*',
        'theory/scoring',
        'mean = (seen * attended).sum(-1) / np.maximum(attended.sum(-1), 1)',
        'mean = seen.mean(-1)',
        'scoring',
        'what_is_read',
      ),
      (
        'the end of a text is a position',
        'theory/texts',
        'certain |= alone & (now < len(found.emits) - 1)',
        'certain |= alone',
        'texts',
        'end_of_a_text',
      ),
      (
        'the region forgets what comes after',
        'theory/texts',
        'state_possible = (arrival & after).any(1)',
        'state_possible = arrival.any(1)',
        'texts',
        'region_is',
      ),
      (
        'the region sees its own token',
        'theory/texts',
        'arrivals.append(before)\n    before = _moved(before & found.emits[now], found.moves)',
        'arrivals.append(before & found.emits[now])\n    before = _moved(before & found.emits[now], found.moves)',
        'texts',
        'region_is',
      ),
      (
        'a family that is not asked for its assumption',
        'theory/families',
        "if found.holds and found.closeness['smallest_singular_value'] >= conditioning:",
        'if found.holds:',
        'families',
        'conditioning',
      ),
      (
        'an added state that is never left to itself',
        'theory/padding',
        'transition_matrix[added, added] = 1',
        'transition_matrix[added, 0] = 0',
        'texts',
        'filled_up_chain_says',
      ),
    )
  ),
]
