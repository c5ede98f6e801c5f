"""The theorems of Wei, Xie and Ma (2021) as programs: assumptions, constructions, and proofs of impossibility."""

from hmm_jax.theory.assumptions import AssumptionError
from hmm_jax.theory.assumptions import Finding
from hmm_jax.theory.assumptions import non_degeneracy
from hmm_jax.theory.assumptions import recoverable_hidden_states
from hmm_jax.theory.assumptions import regularity
from hmm_jax.theory.assumptions import relaxed_non_degeneracy
from hmm_jax.theory.assumptions import relaxed_recoverable_hidden_states
from hmm_jax.theory.assumptions import stationarity
from hmm_jax.theory.assumptions import Thresholds
from hmm_jax.theory.recovery import mass_weights
from hmm_jax.theory.recovery import recoverable_region
from hmm_jax.theory.recovery import theorem_3_3
from hmm_jax.theory.recovery import theorem_3_6
from hmm_jax.theory.recovery import theorem_4_3
from hmm_jax.theory.recovery import theorem_4_6
from hmm_jax.theory.separability import exact_certificate
from hmm_jax.theory.separability import linear_separation
