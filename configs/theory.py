"""The theorems as programs, verified sequence by sequence; where they fail, proofs.

Claim: the constructions of Theorems 3.3, 3.6, 4.3, 4.6 and C.6 give the exact label on every sequence that the theorem
speaks of and whose label is no near tie. For random HMMs with |H| > |X| no linear head does, which linear programs
prove and exact arithmetic confirms.

Command: python -m experiments.main --config=theory
Cost: 5 minutes on two CPU cores.
Expected: 100 HMMs and over a million sequences per theorem, 0 clear disagreements; 24 certified HMMs. The
tables stand in docs/theory.md.
"""

import ml_collections

from configs import base

SCALES = base.SMALL_AND_SMOKE


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default) is what the claim speaks of; `:smoke` runs the path within a minute."""
  config = base.start('theory', scale, SCALES)
  base.thresholds(config)
  config.conditioning = 0.05
  _verification(config)
  _impossibility(config)
  if scale == 'smoke':
    _smoke(config)
  return config


def _verification(config: ml_collections.ConfigDict) -> None:
  """Structured HMMs for each theorem: every sequence up to `max_length`, and sampled long ones."""
  config.verification = base.group(
    num_hmms=100,
    max_length=6,
    num_sampled=6000,
    sampled_length=10,
    num_states=4,
    num_states_3_6=8,
    num_tokens=5,
    num_classes=2,
    memory_size=3,
  )


def _impossibility(config: ml_collections.ConfigDict) -> None:
  """Random HMMs with more states than tokens, `num_hmms` certified ones of each of two kinds."""
  config.impossibility = base.group(
    num_hmms=12,
    num_states=8,
    num_tokens=5,
    num_weighed=2,
    num_nonzero=6,
    **base.temperatures(),
    max_draws=400,
    max_length=4,
    clear_gap=1e-6,
    num_train=1000,
    prompt_length=4,
    prompt_scale=0.5,
    tuning=base.schedule(0.03, 6, 15, 50),
  )


def _smoke(config: ml_collections.ConfigDict) -> None:
  config.verification.update(num_hmms=3, max_length=3, num_sampled=50, sampled_length=3)
  config.impossibility.update(num_hmms=2, max_length=3, num_train=60)
  config.impossibility.tuning.update(num_epochs=1, warmup_steps=1)
