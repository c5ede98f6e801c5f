"""The theorems of Wei, Xie and Ma (2021) as programs: assumptions, constructions, and proofs of impossibility.

The main names; docs/findings/theory.md describes the packages.
"""

from hmm_jax.theory.limits.separability import exact_certificate, linear_separation
from hmm_jax.theory.theorems.assumptions import (
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
from hmm_jax.theory.theorems.recovery import (
  mass_weights,
  recoverable_positions,
  theorem_3_3,
  theorem_3_6,
  theorem_4_3,
  theorem_4_6,
)
