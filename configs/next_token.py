"""Figure 3 (left) in a mirror: a causal model, the last token hidden, a prompt before the text or behind it.

Claims and plan, written down before the runs: docs/findings/causal.md.

Command: python -m experiments.main --config=next_token[:small|evidence|masked|readers|smoke]

Labels are about the state of the last token, so that masked and causal models share texts, labels and the exact G
there. `prompt` stands before the text (a prefix), `inner_prompt` between the text and the hidden token (a suffix), and
`shift` tunes one vector that is added to the last activation of a BERT. `evidence` has 5 HMMs each at |H| = 4, 10 and
30, on a causal BERT, the exact model and an untrained causal BERT; `masked` has a masked BERT on the same texts;
`readers` heads that are not linear on the causal ones at |H| = 30 (docs/findings/readability.md). GINC,
drawn anew five times, is a list of processes:

python -c "import jax; from hmm_jax.distributions import files, processes; \\
  [files.save_distribution(f'runs/ginc_{seed}.json', processes.ginc(jax.random.key(50 + seed))) for seed in range(5)]"
python -m experiments.main --config=next_token:evidence --config.num_trials=1 \\
  --config.distribution=runs/ginc_0.json,runs/ginc_1.json,runs/ginc_2.json,runs/ginc_3.json,runs/ginc_4.json

Cost: `evidence` 75 minutes of CPU time without `shift`, `masked` 46, GINC about half an hour.
Expected, at |H| = 30: a prefix changes nothing on the exact model; on the causal BERT it is 9.3 +- 3.9 points above a
converged head and moves predictions by .29 in total variation, text by .01; on the exact model a suffix is 18.3 +- 6.3
points above a prefix (records: docs/results/next_token).
"""

from typing import Any

import ml_collections

from configs import base

SCALES = ('small', base.EVIDENCE, 'masked', 'readers')
_OF_EVIDENCE = (
  'head',
  'head_whitened',
  'prompt',
  'inner_prompt',
  'shift',
  'probe',
  'probe_converged',
  *base.WITHOUT_MODEL,
)


def _delta(name: str, size: int, **expected: float) -> dict[str, Any]:
  return base.end_point(name, ('exact', 'prompt'), field='tv_movable', num_states=(size,), **expected)


# docs/findings/causal.md has the reasons, and 1, which is of the largest in any record. 3 and 9 are of GINC, 36 states.
_PLAN = (
  *(_delta('2', size, below=1) for size in (4, 10, 30)),
  _delta('3', 36, above=30),
  base.end_point('4', ('exact', 'prompt'), ('exact', 'head'), num_states=(4, 10, 30), above=-1, below=1),
  base.end_point('5', ('exact', 'inner_prompt'), ('exact', 'prompt'), num_states=(30,), above=10),
  base.end_point('6', ('bert', 'prompt'), ('bert', 'head_whitened'), num_states=(30,), above=5),
  base.end_point(
    '7',
    ('bert', 'prompt'),
    ('bert', 'prompt'),
    field='tv_moved',
    second_field='tv_moved_by_text',
    num_states=(30,),
    above=10,
  ),
  base.end_point(
    '8',
    ('bert', 'prompt'),
    ('bert', 'prompt'),
    field='tv_moved_by_text',
    second_field='tv_at_mask',
    times=2.0,
    num_states=(4, 10, 30),
    below=0,
  ),
  base.end_point('9', ('exact', 'prompt'), ('exact', 'head_whitened'), num_states=(36,)),
  base.end_point('11', ('bert', 'shift'), ('bert', 'prompt'), num_states=(30,), above=-5),
)


_READERS = (base.end_point('R3', ('bert', 'prompt'), ('bert', 'quadratic'), num_states=(30,), below=0),)


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """One of SCALES, by default `:small`."""
  config = base.get_config()
  config.update(experiment='next_token', scale=scale)
  config.methods += ('inner_prompt', 'shift', *base.WITHOUT_MODEL)
  config.bert.causal = scale != 'masked'
  config.downstream.hidden = 'last'
  config.figures += ('forgetting',)
  config.measure.prompts = 8
  if scale in (base.EVIDENCE, 'masked'):
    # The seed is no other record's.
    config.update(seed=50, num_trials=5, methods=_OF_EVIDENCE, plan=_PLAN)
    config.models = ('bert', 'exact', 'untrained') if config.bert.causal else ('bert',)
  if scale == 'readers':
    config.update(seed=50, num_trials=5, num_states=(30,), plan=_READERS)
    config.methods = ('head_whitened', 'quadratic', 'mlp_converged', 'prompt', 'table', 'window')
    config.figures = ('figure_3_left',)
    config.measure.prompts = 0
  if scale == 'masked':
    # Nothing is expected of it.
    config.plan = tuple(point | dict(above=(), below=()) for point in _PLAN)
  return config


def reduce(config: ml_collections.ConfigDict) -> None:
  """Reduce sizes, steps and counts to those of a toy, as `:smoke` has them."""
  base.reduce(config)
  config.num_states = (6,)
