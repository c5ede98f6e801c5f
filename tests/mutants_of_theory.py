"""Errors of the theory that the tests must notice."""

from mutant import Mutant

THEORY = [
  *(
    Mutant(name, path, old, new, (f'tests/{file}_test.py', '-k', tests))
    for name, path, old, new, file, tests in (
      (
        "the paper's beta",
        'hmm_jax/theory/theorems/recovery.py',
        'positions[: len(prompt), -1] = -1 - theta_HxV[states].sum(0).max()',
        'positions[: len(prompt), -1] = -2',
        'studies/theory/verification',
        'right_is_not',
      ),
      (
        'keys on the span of the others',
        'hmm_jax/theory/theorems/recovery.py',
        'off_others = np.eye(hmm.num_tokens) - others @ others.T',
        'off_others = np.eye(hmm.num_tokens)',
        'library/theory/theorems/recovery',
        'every_label',
      ),
      (
        'a prompt that forgets what comes before the text',
        'hmm_jax/theory/theorems/recovery.py',
        'u = (in_support[..., None] * ratios).reshape(1, -1)',
        'u = (in_support[..., None] * np.sign(ratios)).reshape(1, -1)',
        'library/theory/theorems/scoring',
        'what_is_read',
      ),
      (
        'r_x without the evidence',
        'hmm_jax/theory/theorems/scoring.py',
        'factor = mean * _prompt_scale(problem, prompt) * _ratio(loglik, prompted_loglik)',
        'factor = mean * _prompt_scale(problem, prompt)',
        'library/theory/theorems/scoring',
        'what_is_read',
      ),
      (
        'r_x without the scale of the prompt',
        'hmm_jax/theory/theorems/scoring.py',
        'return max(scales, default=1.0)',
        'return 1.0',
        'library/theory/theorems/scoring',
        'what_is_read',
      ),
      (
        'r_x of positions outside of H*',
        'hmm_jax/theory/theorems/scoring.py',
        'mean = (seen * attended).sum(-1) / np.maximum(attended.sum(-1), 1)',
        'mean = seen.mean(-1)',
        'library/theory/theorems/scoring',
        'what_is_read',
      ),
      (
        'the end of a text is a position',
        'hmm_jax/theory/problems/texts.py',
        ' & (now < len(found.emits) - 1)',
        '',
        'library/theory/problems/texts',
        'end_of_a_text',
      ),
      (
        'the region forgets what comes after',
        'hmm_jax/theory/problems/texts.py',
        '(arrival & later).any(1)',
        'arrival.any(1)',
        'library/theory/problems/texts',
        'region_is',
      ),
      (
        'the region sees its own token',
        'hmm_jax/theory/problems/texts.py',
        '(arrival & later).any(1)',
        '(arrival & later & found.emits[now]).any(1)',
        'library/theory/problems/texts',
        'region_is',
      ),
      (
        'a family that is not asked for its assumption',
        'hmm_jax/theory/problems/families.py',
        " or found.closeness['smallest_singular_value'] < conditioning",
        '',
        'library/theory/problems/families',
        'conditioning',
      ),
      (
        'an added state that is never left to itself',
        'hmm_jax/theory/theorems/padding.py',
        'transition_matrix[added, added] = 1',
        'transition_matrix[added, 0] = 0',
        'library/theory/problems/texts',
        'filled_up_chain_says',
      ),
    )
  ),
]
