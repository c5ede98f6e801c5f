"""The theorems of Wei, Xie and Ma (2021) as programs: assumptions, constructions, and proofs of impossibility.

The main names; docs/findings/theory.md describes the modules.
"""

from hmm_jax.theory.assumptions import (
  AssumptionError,
  Finding,
  non_degeneracy,
  recoverable_hidden_states,
  regularity,
  relaxed_non_degeneracy,
  relaxed_recoverable_hidden_states,
  stationarity,
  Thresholds,
)
from hmm_jax.theory.counterexamples import head_fails_attention_succeeds, head_fails_prompt_succeeds
from hmm_jax.theory.forgetting import prefix_bound
from hmm_jax.theory.masks import MaskCount, masks_as_one_token, masks_needed, MasksNeeded
from hmm_jax.theory.powers import emission_powers, form_head
from hmm_jax.theory.problem import MemoryProblem, StateProblem
from hmm_jax.theory.prompt_place import inner_prompt
from hmm_jax.theory.recovery import (
  mass_weights,
  recoverable_positions,
  theorem_3_3,
  theorem_3_6,
  theorem_4_3,
  theorem_4_6,
)
from hmm_jax.theory.theorems import Criteria, Program, program
from hmm_jax.tuning.separability import exact_certificate, linear_separation
