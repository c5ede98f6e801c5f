"""Figure 3 (right): is a label about a persistent memory easier to recover than one about a hidden state?

Claim, the paper's: an attention head on the token probabilities of the whole sequence recovers a label of
P[M | X_{-1}], for |H| = 4 and |M| in {2, 3, 5, 7}, where a linear head at the first position does not recover one of
P[H_1 | X_{-1}] on the vanilla HMM of |M||H| states. Theorem 4.3 covers few of these draws: its Assumption 4.2 holds in
40, 1, 0 and 0 of 40 at |M| = 2, 3, 5 and 7 (docs/findings/figure_3.md). It does not explain why the head succeeds past
|M| = 2.

Command: python -m experiments.main --config=memory_vs_vanilla[:small|evidence|paper|paper_v1|official|tuned|smoke]

`evidence` is `small` with 5 draws of each distribution and the controls that the panel lacks: the attention head reads
the tokens x_i beside G, and the linear head does not. The controls are attention without tokens, attention on a
constant G (a bag of words), attention on vanilla text, and a linear head on text with a memory. It took 1.0 hour of
CPU time; `--config.num_trials=8` adds three draws to each. Its records are in docs/results/small/figure_3_right.

Cost: `small` took 8 min 15 s of CPU time on two cores that other work shared. It pretrains 350 steps by Muon in place
of 750 by AdamW, a ratio that was found on text without a memory. `paper`
is 8 distributions x 5 trials of 37,500 steps of BERT-base with 6 layers, for an accelerator; `paper_v1`, the first
text, one such pretraining for each distribution and 5 draws of mu; `official` as `paper` with the released code's
settings (its attention, joint P[M, H_1], |M||H| permutations, attention on the vanilla text too, 80 positions of texts
whose 128 tokens all decide the label). None has been run yet. It is only checked that they build, and that their
vanilla models have the ids of prompt_vs_head at the same scale and size. At `small` the two experiments share no size.

Expected at `small` (seed 0, one distribution and 4 tasks per size): the attention head at 97% or more on exact G and
90% or more on BERT, the vanilla head below it at |M||H| = 20 and 28. At `evidence`: on BERT attention on memory text is
significantly above the head on vanilla text at every |M|; with attention on both texts at |M| = 7 alone, with a linear
head on both at |M| = 3 alone; and attention on BERT is at no size significantly above attention on a constant G.

Why some draws fall short on the exact model: near ties, and at |M| = 7 optimisation. A draw of mu has 6 nonzero
entries among 2|M|, so that from |M| = 4 on some memory values have weight 0 in both scores. Where the posterior is
almost certain of such a value, the label is decided by what little mass is left on the others, often far below the
1e-6 from which `near_tie_share` counts. Measured on the exact model
alone, 8 draws of 4 tasks per size, with 5 and with 25 epochs:

python -m experiments.main --config=memory_vs_vanilla --config.models="('exact',)" --config.num_trials=8 \\
  --config.memory.sizes=5,7 --config.memory.vanilla_methods="()" --config.attention.num_epochs=25 --workdir=runs/ties

|M| = 5, 12.2% near ties: 2 of 32 tasks below 98.5% with 5 epochs and the same number with 25; without the near ties
none (least 99.6%). |M| = 7, 24.1% near ties: 12 of 32 tasks below 98.5% with 5 epochs, 3 with 25; without the near
ties 10 and 3 (means 98.3% and 99.3%). So at |M| = 5 the shortfall is ties, at |M| = 7 most of it is five epochs being
too few. Why three tasks stay low is open: a poor optimum, or scores that differ by more than 1e-6 and still by too
little.
"""

import ml_collections

from configs import base

SCALES = (*base.SCALES, base.EVIDENCE)


# The vanilla text that memory text is compared with has other draws: the table `texts` decides that claim.
_PLAN = (
  base.end_point('attention on exact G', ('exact', 'attention'), num_states=(4,), above=97),
  base.end_point('attention on BERT', ('bert', 'attention'), num_states=(4,), above=90),
)


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default), `:evidence`, `:paper`, `:paper_v1`, `:official` or `:tuned`."""
  config = base.get_config(scale)
  config.experiment = 'memory_vs_vanilla'
  config.figure.paper_overlay = True
  config.figures = ('figure_3_right',)
  config.plan = _PLAN
  config.num_states = (4,)
  config.memory.sizes = (2, 3, 5, 7)
  config.methods = ('attention',)
  config.memory.vanilla_methods = ('head',)
  if scale in ('small', base.EVIDENCE):
    config.pretrain.num_steps = 350
  if scale == base.EVIDENCE:
    config.num_trials = 5
    config.methods = config.memory.vanilla_methods = ('head', 'attention', *base.BEYOND_PROTOCOL)
    config.figures = ('figure_3_right', 'controls', 'budget')
  if scale in base.REPEATED:
    config.num_trials = 5
  if scale == 'official':
    config.memory.vanilla_methods = ('attention', 'head')
  return config


def reduce(config: ml_collections.ConfigDict) -> None:
  """Reduce sizes, steps and counts to those of a toy, as `:smoke` has them; `:evidence` has many fits, of one size."""
  base.reduce(config)
  # The vanilla HMMs have 4 and 6 states, as other experiments.
  config.num_states, config.memory.sizes = (2,), (2, 3)
  if config.scale == base.EVIDENCE:
    config.memory.sizes = (3,)
