"""More masks, another place for the prompt, heads that are not linear: past the paper's theorems.

Claims and plan, written down before the runs: docs/findings/beyond.md.

Command: python -m experiments.main --config=beyond[:masks|temperatures|readers|degree|smoke]

`masks` compares, on BERT and on the exact model at |H| = 10, 15, 25 and 30, a head, a prompt before the text, a prompt
between the [MASK] and the text, the marginals of five [MASK]s, and a probe. `temperatures` asks on the exact model how
many points readers without a model lose as emissions grow weaker; it is run with
--config.hmm.emission_temperature=0.01,0.05,0.1,0.15,0.2,0.3. The seed is no other record's.

`readers` asks whether a head that is not linear reads at one [MASK] what a linear one does not
(docs/findings/readability.md): at |H| = 25 and 30, on the HMMs of `prompt_vs_head:evidence` and, with --config.seed=46
--config.num_trials_by_size=(), on those of `masks`. Controls are further runs in the same folders:
--config.models=exact,untrained --config.methods=head_whitened,quadratic,masks_converged,neighbours.
`degree` asks the same of the exact model, as posteriors become mixed (temperature) and as |H| passes 55, the number of
products of two of ten numbers.

Cost: seven trials of `masks` took 24 minutes of CPU time, 12 of them tuning, so that 20 take about 70; `temperatures`
three.
Expected, at |H| = 25 and 30: on BERT a converged head on five marginals is 14.7 +- 3.9 points above one on G, and a
prompt within a point of it; an inner prompt is 3.8 +- 1.6 points above the prompt on the exact model, 8.3 +- 7.1 below
on BERT (records: docs/results/beyond).
"""

import ml_collections

from configs import base

SCALES = ('masks', 'temperatures', 'readers', 'degree')
_METHODS = {
  'masks': (
    'head',
    'head_whitened',
    'prompt',
    'inner_prompt',
    'masks',
    'masks_converged',
    'probe',
    'probe_converged',
    *base.WITHOUT_MODEL,
  ),
  'temperatures': ('head_whitened', 'prompt', 'masks_converged', *base.WITHOUT_MODEL, 'tokens_ridge'),
  'readers': (
    'head_whitened',
    'quadratic',
    'mlp',
    'mlp_converged',
    'masks_converged',
    'prompt',
    'table',
    'window',
    'window_quadratic',
  ),
  'degree': (
    'head_whitened',
    'quadratic',
    'masks_converged',
    'posterior',
    'neighbours',
    'table',
    'window',
    'tokens_ridge',
  ),
}


# docs/findings/beyond.md has the reasons, and end point 3, which is finished.
_PLAN = (
  base.end_point('1', ('bert', 'masks_converged'), ('bert', 'head_whitened'), num_states=(25, 30), above=15),
  base.end_point('2', ('bert', 'prompt'), ('bert', 'masks_converged'), num_states=(25, 30), above=-3, below=3),
  base.end_point('4', ('bert', 'masks'), ('bert', 'head'), num_states=(10, 15), above=0),
  base.end_point('5', ('exact', 'inner_prompt'), ('exact', 'prompt'), num_states=(25, 30), above=0),
  base.end_point('6', ('bert', 'inner_prompt'), ('bert', 'prompt'), num_states=(25, 30)),
)


# docs/findings/readability.md has the reasons, and R3 to R5, of other scales.
_READERS = (
  base.end_point('R1', ('bert', 'quadratic'), ('bert', 'head_whitened'), num_states=(25, 30), above=10),
  base.end_point('R2', ('bert', 'quadratic'), ('bert', 'prompt'), num_states=(25, 30), above=-2, below=2),
  base.end_point('R6', ('exact', 'neighbours'), num_states=(25, 30), above=99),
)


def get_config(scale: str = 'masks') -> ml_collections.ConfigDict:
  """One of SCALES, by default `:masks`."""
  config = base.get_config()
  config.update(experiment='beyond', scale=scale, methods=_METHODS[scale])
  config.figures = ('figure_3_left',)
  config.update(seed=46, num_trials=5, num_states=(10, 15, 25, 30), plan=_PLAN)
  if scale == 'temperatures':
    config.update(num_states=(10, 30), plan=())
    config.models = ('exact',)
  if scale == 'readers':
    config.update(seed=0, num_states=(25, 30), num_trials_by_size=(5, 7), plan=_READERS)
    config.models = ('bert',)
  if scale == 'degree':
    config.update(num_states=(30, 50, 60, 80), models=('exact',), figures=(), plan=())
    config.hmm.emission_temperature = base.values(0.01, 0.05, 0.15)
  return config


def reduce(config: ml_collections.ConfigDict) -> None:
  """Reduce sizes, steps and counts to those of a toy, as `:smoke` has them."""
  base.reduce(config)
  config.num_states = (6,)
  config.num_trials_by_size = config.num_trials_by_size[:1]
