"""Several memory cells: can a label about one of them be recovered, and does a prompt help?

Claim, measured and not proved: an attention head recovers a label of P[M_j* | X_{-1}], and a linear head at the first
position does not. The paper has theorems for several cells (4.3, and C.6 of the first text for a prompt) and no such
experiment. They do not cover these draws: W has 18 columns in |X| = 10 dimensions, and Assumption 4.2 fails in each of
20 draws at every N (`hmm_jax.theory.recoverable_hidden_states` decides it).

|H| = 6 hidden states (j, s) are shared evenly among N in {1, 2, 3} cells of |M| = 3 values; labels are about cell 0.
From N = 2 on, the attention figure shows attention against P[J_i = j* | X_{-i}], the probability that position i reads
the label's cell; at N = 1 every position reads the one cell. The axis of Theorem 4.3, P[H_i in H* | X_{-i}], is not
available: there is no H* here.

Command: python -m experiments.main --config=memory_cells[:small|paper|paper_v1|official|tuned|smoke]

Cost: `small` took 8 min 19 s of CPU time, on two cores shared with other work. The paper has no such experiment:
`paper`, `paper_v1` and `official` take its model, text, tasks and counts of memory_vs_vanilla. None of them has been
run.

Expected at `small` (seed 0, 4 tasks): attention above 95% on BERT and 99% on the exact model at every N, with a prompt
no lower, the linear head below 90% at N = 1 and falling with N. The numbers of such a run are in
docs/findings/figure_3.md.
"""

import ml_collections

from configs import base

SCALES = base.SCALES


_PLAN = (
  base.end_point('attention on BERT', ('bert', 'attention'), above=95),
  base.end_point('attention on exact G', ('exact', 'attention'), above=99),
  base.end_point('with a prompt', ('bert', 'prompt_attention'), ('bert', 'attention'), above=0),
)


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default), `:paper`, `:paper_v1`, `:official` or `:tuned`."""
  config = base.get_config(scale)
  config.experiment = 'memory_cells'
  config.figures = ('memory_cells', 'attention')
  config.update(num_states=(6,), plan=_PLAN)
  config.memory.sizes = (3,)
  config.memory.cells = (1, 2, 3)
  config.methods = ('attention', 'prompt_attention', 'head')
  if scale in base.REPEATED:
    config.num_trials = 5
  return config


def reduce(config: ml_collections.ConfigDict) -> None:
  """Reduce sizes, steps and counts to those of a toy, as `:smoke` has them."""
  base.reduce(config)
  config.num_states = (2,)
  config.memory.update(sizes=(2,), cells=(1, 2))
