"""Pretraining recipes at equal operations: which comes closest to the ideal model?

Claim: Muon on 30% of positions reaches the KL at the [MASK] that AdamW on 15% has after 1250 steps, in 580 steps and
with 0.68 of the operations, as geometric means over three HMMs at |H| = 10 and at 30.

Commands:
python -m experiments.main --config=recipes
python -m experiments.main --config=recipes:finalists

`small` changes one thing at a time at |H| = 30, on two HMMs, with 500 steps of the base. `finalists` runs two recipes
chosen from it on six HMMs, with the default number of steps, head and prompt. Recipes differ in training, never in
architecture, and each takes as many steps as the operations of the base pay for.

Cost: 26 and 18 pretrainings, about 25 and 45 minutes of CPU time on two cores that other work shared.
"""

import ml_collections

from configs import base

SCALES = ('small', 'finalists', 'smoke')

# The last has longer chunks in a smaller batch, so that a step sees as many tokens.
_ONE_FACTOR = (
  'pretrain.learning_rate=1e-3',
  'pretrain.learning_rate=4e-3',
  'pretrain.learning_rate=8e-3',
  'pretrain.batch_size=16',
  'pretrain.batch_size=64',
  'pretrain.mask_rate=0.3',
  'pretrain.decay=wsd',
  'pretrain.b2=0.98',
  'pretrain.optimizer=muon',
  'bert.init_stddev=0.02',
  'bert.init_stddev=0.1',
  'corpus.chunk_length=128 pretrain.batch_size=16 bert.max_positions=128',
)

# The two factors that helped on both HMMs, without and with the next best; 0.68 of the operations of the base.
_FINALISTS = (
  'pretrain.optimizer=muon pretrain.mask_rate=0.3 pretrain.num_steps=580',
  'pretrain.optimizer=muon pretrain.mask_rate=0.3 pretrain.decay=wsd pretrain.num_steps=580',
)


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """`:small` (default), `:finalists` or `:smoke`; raises ValueError for another."""
  if scale not in SCALES:
    raise ValueError(f'config scale is {scale!r}; valid are {", ".join(SCALES)}')
  config = base.get_config('smoke' if scale == 'smoke' else 'small')
  config.update(experiment='recipes', scale=scale)
  config.models = ('bert',)
  config.figures = ()
  config.figure.update(width=7.0, height=5.2)
  if scale != 'smoke':
    _recipe(config)
    config.pretrain.steps_per_call = 10
  {'small': _small, 'finalists': _finalists, 'smoke': _smoke}[scale](config)
  return config


def _recipe(config: ml_collections.ConfigDict) -> None:
  """Set the recipe that `small` had before this study."""
  config.pretrain.update(num_steps=1250, batch_size=32, learning_rate=2e-3, warmup_steps=100, mask_rate=0.15)
  config.pretrain.update(optimizer='adamw', decay='linear', b2=0.999)


def _small(config: ml_collections.ConfigDict) -> None:
  config.num_states = (30,)
  config.num_trials = 2
  config.methods = ('head',)
  config.pretrain.update(num_steps=500, warmup_steps=40)
  config.variants = _ONE_FACTOR
  config.num_measurements = 10


def _finalists(config: ml_collections.ConfigDict) -> None:
  config.num_states = (10, 30)
  config.num_trials = 3
  config.tasks_per_trial = config.tasks_at_a_time = 2
  config.variants = _FINALISTS
  config.num_measurements = 10


def _smoke(config: ml_collections.ConfigDict) -> None:
  config.methods = ('head',)
  config.tasks_per_trial = 1
  config.variants = ('pretrain.optimizer=adamw pretrain.batch_size=16',)
  config.num_measurements = 2
