"""The theorems as programs: verified, with wrong ones that must fail; HMMs with no linear head.

Claim: the constructions of Theorems 3.3, 3.6, 4.3, 4.6 and C.6 return all that their theorems recover, up to a positive
factor, on every sequence in the theorem's region, which implies the label of every task; every wrong construction is
detected. Some random HMMs with |H| > |X| have no right linear head, by exact proof. The study counts these, and how
often the paper's own draws satisfy its assumptions.

Command: python -m experiments.main --config=theory
Cost: about 1 minute 30 seconds of CPU on two cores with other work on them; 40 seconds more to compile anew.
Expected: 0 wrong of at least 300,000 sequences in 100 HMMs for each theorem, with relative errors of at most 8e-8; all
21 wrong constructions detected. Printed: 457,615 sequences for Theorem 3.3, 460,056 for 3.6, 319,996 for 4.3, 309,528
for 4.6 and 329,182 for C.6, after 0, 0, 132, 97 and 128 HMMs whose region is too rare.
"""

import ml_collections

from configs import base

SCALES = ('small',)


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """Return the config of `small`, the only scale."""
  config = base.start('theory', scale)
  base.thresholds(config)
  config.conditioning = 0.05
  _verification(config)
  _impossibility(config)
  _prevalence(config)
  return config


def _verification(config: ml_collections.ConfigDict) -> None:
  """Random HMMs for each theorem: every short sequence in its region, and sampled long ones."""
  config.verification = base.group(num_hmms=100, num_sequences=4640, num_mutated=9, length=10)


def _impossibility(config: ml_collections.ConfigDict) -> None:
  """Random HMMs with more states than tokens, `num_hmms` of each of two kinds."""
  config.impossibility = base.group(num_hmms=40, num_states=8, num_tokens=5, length=5)


def _prevalence(config: ml_collections.ConfigDict) -> None:
  """The paper's own draws by size: V = 10, mu with 6 nonzero entries for 2 classes, memories of one cell."""
  config.prevalence = base.group(
    num_draws=40,
    num_states=(4, 8, 10, 12, 15, 25, 30),
    memory_sizes=(2, 3, 5, 7),
    num_memory_states=4,
    num_tokens=10,
    rank_levels=(1e-9, 1e-2),
    support_levels=(0.0, 1e-3, 1e-2, 1e-1),
    max_nodes=2000,
  )


def reduce(config: ml_collections.ConfigDict) -> None:
  """Reduce sizes, steps and counts to those of a toy, as `:smoke` has them."""
  config.verification.update(num_hmms=3, num_sequences=200, num_mutated=2, length=6)
  config.impossibility.update(num_hmms=4, length=3)
  config.prevalence.update(num_draws=3, num_states=(10,), memory_sizes=(2,), max_nodes=200)
