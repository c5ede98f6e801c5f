"""Errors of the theory that the tests must notice."""

THEORY = {
  'hmm_jax/theory/theorems/recovery.py': [
    (
      "the paper's beta",
      'positions[: len(prompt), -1] = -1 - theta_HxV[states].sum(0).max()',
      'positions[: len(prompt), -1] = -2',
      'studies/theory/verification',
      'right_is_not',
    ),
    (
      'keys on the span of the others',
      'off_others = np.eye(hmm.num_tokens) - others @ others.T',
      'off_others = np.eye(hmm.num_tokens)',
      'library/theory/theorems/recovery',
      'every_label',
    ),
    (
      'a prompt that forgets what comes before the text',
      'u = (in_support[..., None] * ratios).reshape(1, -1)',
      'u = (in_support[..., None] * np.sign(ratios)).reshape(1, -1)',
      'library/theory/theorems/scoring',
      'what_is_read',
    ),
  ],
  'hmm_jax/theory/theorems/scoring.py': [
    (
      'r_x without the evidence',
      'factor = mean * _prompt_scale(problem, prompt) * _ratio(loglik, prompted_loglik)',
      'factor = mean * _prompt_scale(problem, prompt)',
      'library/theory/theorems/scoring',
      'what_is_read',
    ),
    (
      'r_x without the scale of the prompt',
      'return max(scales, default=1.0)',
      'return 1.0',
      'library/theory/theorems/scoring',
      'what_is_read',
    ),
    (
      'r_x of positions outside of H*',
      'mean = (seen * attended).sum(-1) / np.maximum(attended.sum(-1), 1)',
      'mean = seen.mean(-1)',
      'library/theory/theorems/scoring',
      'what_is_read',
    ),
  ],
  'hmm_jax/theory/problems/texts.py': [
    (
      'the end of a text is a position',
      ' & (now < len(found.emits) - 1)',
      '',
      'library/theory/problems/texts',
      'end_of_a_text',
    ),
    (
      'the region forgets what comes after',
      'np.bitwise_or.reduce(arrival & later)',
      'np.bitwise_or.reduce(arrival)',
      'library/theory/problems/texts',
      'region_is',
    ),
    (
      'the region sees its own token',
      'np.bitwise_or.reduce(arrival & later)',
      'np.bitwise_or.reduce(arrival & later & (found.emits[now] @ (1 << np.arange(len(found.moves)))).T)',
      'library/theory/problems/texts',
      'region_is',
    ),
    (
      'what is possible forgets what is emitted',
      'moved.take(reached[-1] & emits_CxV.take(now, axis=1))',
      'moved.take(reached[-1])',
      'library/theory/problems/texts',
      'possible_sequences',
    ),
    (
      'every block of a corpus is the same',
      'sample_corpus(jax.random.fold_in(key, block), distribution',
      'sample_corpus(key, distribution',
      'library/theory/problems/texts',
      'blocks_of_a_corpus',
    ),
  ],
  'hmm_jax/theory/theorems/padding.py': [
    (
      'a start that is nothing for added values',
      'first_probs[first_probs.sum(-1) == 0, 0] = 1',
      '',
      'library/theory/problems/texts',
      'filled_up_chain_says',
    ),
    (
      'an added state that is never left to itself',
      'transition_matrix[added, added] = 1',
      'transition_matrix[added, 0] = 0',
      'library/theory/problems/texts',
      'filled_up_chain_says',
    ),
  ],
  'hmm_jax/theory/problems/families.py': [
    (
      'a family that is not asked for its assumption',
      " or found.closeness['smallest_singular_value'] < conditioning",
      '',
      'library/theory/problems/families',
      'conditioning',
    ),
  ],
}
