"""The defaults of every experiment, each written once; the library's own are in `hmm_jax/defaults.py`.

Configs are data. The class of settings defines what a field means and takes, and
`python -m experiments.main --config=NAME --help` prints it.

The scales: `small` is for a CPU with two cores. `paper` follows the paper's later text (20 pretrainings a size, 5 for
Figure 3 right), `paper_v1` its first text (one, with 5 draws of mu), `official` its released code. `tuned` is `paper`
with the pretraining recipe of `small`: Muon, 30% of positions.
`evidence` is `small` with several HMMs a size. `smoke` is the default scale after `reduce`, which
changes only numbers: what runs, and what is drawn, is the same. Its results mean nothing.
"""

from typing import Any

import ml_collections

from hmm_jax import defaults

SCALES = ('small', 'paper', 'paper_v1', 'official', 'tuned')
# `small` with many HMMs and every method, for the two panels of Figure 3 alone.
EVIDENCE = 'evidence'
# Scales with the paper's model, text and tasks.
OF_PAPER = ('paper', 'paper_v1', 'official', 'tuned')
# Scales of these that pretrain anew in every trial, as the later text does.
REPEATED = ('paper', 'official', 'tuned')
# |H| of the first text and of the released code; the later text omits 12.
FIRST_SIZES = (4, 8, 10, 12, 15, 25, 30)
# Beside the protocol of the paper: each head at its optimum, and what attention does without tokens or predictions.
BEYOND_PROTOCOL = (
  'head_best',
  'head_converged',
  'head_whitened',
  'attention_converged',
  'attention_blind',
  'attention_constant',
)
# Readers of the tokens without a model.
WITHOUT_MODEL = ('table', 'tokens')


def group(**fields: Any) -> ml_collections.ConfigDict:
  """A group of related fields."""
  return ml_collections.ConfigDict(fields)


def values(*several: Any) -> ml_collections.FieldReference:
  """Several values of a scalar field, for a grid: `config.prompt.length = base.values(1, 5, 20)`."""
  return ml_collections.FieldReference(several, field_type=object)


def bert(**sizes: Any) -> ml_collections.ConfigDict:
  """The fields of a BERT, computed as suits a CPU."""
  return group(**{'dropout_rate': 0.0, **sizes}, dtype='float32', causal=False)


def schedule(learning_rate: float, num_epochs: int, batch_size: int, warmup_steps: int) -> ml_collections.ConfigDict:
  """The tuning schedule of a method: AdamW with linear warm-up and decay."""
  return group(
    learning_rate=learning_rate,
    num_epochs=num_epochs,
    batch_size=batch_size,
    warmup_steps=warmup_steps,
    weight_decay=0.0,
    clip_norm=1.0,
    min_steps=0,
  )


def temperatures() -> dict[str, float]:
  """The temperatures of the paper's random draw."""
  return dict(transition_temperature=0.01, initial_temperature=10.0, emission_temperature=0.01)


def masked_lm(**fields: Any) -> ml_collections.ConfigDict:
  """The pretraining fields of a small BERT: by default AdamW and BERT's corruption."""
  of_steps = dict(optimizer='adamw', steps_per_call=defaults.STEPS_PER_CALL, **defaults.OPTIMIZER)
  return group(mask_rate=0.15, **of_steps, **fields)


def end_point(name: str, first: tuple[str, str], second: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
  """An end point of a plan: the fields of `experiments.settings.plan.EndPoint`, `above` and `below` as numbers."""
  bounds = {side: (fields.pop(side),) for side in ('above', 'below') if side in fields}
  return dict(name=name, first=first, second=second, **bounds, **fields)


def figure(width: float = 6.4, height: float = 4.2) -> ml_collections.ConfigDict:
  """The fields of figures."""
  return group(width=width, height=height, dpi=150, paper_overlay=False)


def thresholds(config: ml_collections.ConfigDict) -> None:
  """Set the limits of the theory: the largest zero, the widest tie, the longest search."""
  config.support_threshold = 0.0
  config.rank_threshold = 1e-9
  config.stationarity_tolerance = 1e-9
  config.margin = 1e-9
  config.max_nodes = 100_000


def start(experiment: str, scale: str) -> ml_collections.ConfigDict:
  """The fields that every experiment has."""
  config = ml_collections.ConfigDict()
  config.experiment = experiment
  config.scale = scale
  config.seed = 0
  config.compilation_cache = 'auto'
  return config


def get_config(scale: str = 'small') -> ml_collections.ConfigDict:
  """The defaults of a grid of trials, at one of SCALES or EVIDENCE; the caller sets `experiment`.

  Raises ValueError for another scale.
  """
  if scale not in (scales := (*SCALES, EVIDENCE)):
    raise ValueError(f'config scale is {scale!r}; valid are {", ".join(scales)}')
  config = start('', scale)
  for part in (_grid, _text, _pretraining, _tasks, _running):
    part(config)
  if scale in OF_PAPER:
    _paper(config)
  if scale == 'paper_v1':
    _paper_v1(config)
  if scale == 'official':
    _official(config)
  if scale == 'tuned':
    _tuned(config)
  return config


def _grid(config: ml_collections.ConfigDict) -> None:
  """A trial is a distribution with its corpus and pretrained model; a task is a draw of task_weights in it."""
  config.num_states = (4, 10, 30)
  config.num_trials = 1
  config.num_trials_by_size = ()
  # With more tasks at a time than there are, the others cost time all the same.
  config.tasks_per_trial = config.tasks_at_a_time = 4
  config.models = ('bert', 'exact')
  config.model = ''
  config.own_head = config.label = ''
  config.methods = ('head', 'prompt')
  config.distribution = ''
  config.corpus_file = ''
  config.pretrained_from = ''


def _text(config: ml_collections.ConfigDict) -> None:
  """The distribution that text is drawn from, and the corpus."""
  config.hmm = group(num_tokens=10, **temperatures())
  config.memory = group(
    sizes=(0,), cells=(1,), label_cell=0, joint_prior=False, joint_permutations=False, vanilla_methods=()
  )
  config.corpus = group(**defaults.CORPUS)


def _pretraining(config: ml_collections.ConfigDict) -> None:
  """The model, its pretraining, and how its distance from the ideal one is measured."""
  config.bert = bert(**defaults.BERT)
  steps = dict(num_steps=defaults.NUM_STEPS, batch_size=defaults.BATCH_SIZE, warmup_steps=defaults.WARMUP_STEPS)
  config.pretrain = masked_lm(**steps, checkpoint_every=150, measure_every=150)
  config.pretrain.update(optimizer='muon', mask_rate=defaults.CORRUPTION['mask_rate'])
  sizes = dict(num_inputs=defaults.NUM_INPUTS, batch_size=defaults.INPUTS_AT_A_TIME)
  config.checkpoints = ()
  config.measure = group(num_chunks=256, num_documents=16, prompts=0, **sizes)


def _tasks(config: ml_collections.ConfigDict) -> None:
  """The downstream tasks and the tuning of each method."""
  texts = dict(length=defaults.LENGTH, num_train=defaults.NUM_TRAIN, num_validation=500, num_test=defaults.NUM_TEST)
  config.downstream = group(**texts, **defaults.TASK_WEIGHTS, num_positions=0, label_state='first')
  config.downstream.update(hidden='first', num_labels=0)
  config.head = group(**defaults.SCHEDULE, min_steps=0)
  config.finetune = schedule(1e-4, 5, 32, 100)
  config.prompt = group(
    **defaults.SCHEDULE, min_steps=0, length=defaults.PROMPT_LENGTH, init='uniform', init_scale=defaults.PROMPT_SCALE
  )
  config.attention = group(**defaults.SCHEDULE, min_steps=0)
  config.attention.form = 'paper'
  # Fits that separate the losses of a protocol (experiments/analysis/error_budget.py).
  config.on_test = group(tolerance=1e-9)
  config.converged = group(ridge=1e-6, tolerance=1e-8, max_iterations=20_000)
  config.restarts = group(number=8, steps_factor=10)
  config.masks = group(number=5)
  config.mlp = group(width=300)
  config.neighbours = group(num_texts=100_000)


def _running(config: ml_collections.ConfigDict) -> None:
  """Settings of running. None is part of an id; only the mesh may change a record's bits."""
  config.mesh = group(data=-1, tensor=1)
  config.distributed = group(
    mode='auto',
    num_processes=0,
    coordinator_address='',
    process_id=0,
    heartbeat_timeout=30,
  )
  config.pretrained = 'runs/pretrained'
  config.time_budget = 0.0
  config.shown_texts = 10
  config.figures = ('figure_3_left',)
  config.figure = figure()
  config.plan = ()


def _schedules(config: ml_collections.ConfigDict) -> list[ml_collections.ConfigDict]:
  """The groups that are tuning schedules."""
  groups = [value for value in config.values() if isinstance(value, ml_collections.ConfigDict)]
  return [group for group in groups if 'num_epochs' in group]


def _paper(config: ml_collections.ConfigDict) -> None:
  config.num_states = (4, 8, 10, 15, 25, 30)
  config.num_trials = 20
  config.tasks_per_trial = config.tasks_at_a_time = 1
  config.corpus.num_documents = 5000
  config.corpus.chunk_length = 512
  config.bert.update(num_layers=6, width=768, num_heads=12, ffn_width=3072, max_positions=512)
  config.bert.update(dropout_rate=0.1, init_stddev=0.02, dtype='bfloat16')
  config.pretrain.update(optimizer='adamw', num_steps=37500, batch_size=8, learning_rate=1e-5, warmup_steps=500)
  config.pretrain.update(mask_rate=0.05)
  config.pretrain.update(steps_per_call=100, checkpoint_every=7500, measure_every=2500)
  config.measure.update(num_inputs=1000, num_documents=8)
  config.downstream.update(length=129, num_train=5000)
  for method in ('head', 'attention', 'prompt'):
    config[method].update(batch_size=8, warmup_steps=500)
  config.finetune.update(learning_rate=1e-5, batch_size=8, warmup_steps=500)


def _paper_v1(config: ml_collections.ConfigDict) -> None:
  config.num_states = FIRST_SIZES
  config.num_trials = 1
  config.tasks_per_trial = 5


def _official(config: ml_collections.ConfigDict) -> None:
  """Labels depend on all 128 tokens; the model sees 80 positions, [MASK] + 79 tokens or prompt 20 + [MASK] + 59."""
  config.num_states = FIRST_SIZES
  config.pretrain.warmup_steps = 1000
  config.downstream.update(num_positions=80, label_state='silent', with_replacement=True)
  config.prompt.init = 'vocabulary'
  config.memory.update(joint_prior=True, joint_permutations=True)
  config.attention.form = 'official'
  for tuning in _schedules(config):
    tuning.update(num_epochs=100, batch_size=128, warmup_steps=500)


def _tuned(config: ml_collections.ConfigDict) -> None:
  """`paper` with another training at no more operations: Muon, on batches large enough to spread its own products over.

  Not measured at this scale: factors and learning rates won at the small scale. Muon's rates are the likeliest to hold
  across widths, since its update of a matrix has the same spectral norm at every width.
  """
  config.pretrain.update(optimizer='muon', learning_rate=2e-3, batch_size=32, mask_rate=0.15)
  config.pretrain.update(num_steps=7600, warmup_steps=600, checkpoint_every=500, measure_every=500)


def reduce(config: ml_collections.ConfigDict) -> None:
  """Reduce the numbers of a grid of trials, at any scale, to those of a toy: sizes, steps and counts."""
  config.num_states = (4, 6)[: len(config.num_states)]
  config.num_trials = min(config.num_trials, 2)
  config.num_trials_by_size = (2, 1)[: len(config.num_trials_by_size)]
  config.tasks_per_trial = config.tasks_at_a_time = 2
  config.shown_texts = min(config.shown_texts, 2)
  config.corpus.update(num_documents=8, document_length=512, chunk_length=16)
  config.bert.update(num_layers=1, width=16, num_heads=2, ffn_width=32, max_positions=24)
  config.pretrain.update(num_steps=40, batch_size=8, warmup_steps=10, steps_per_call=10)
  config.pretrain.update(checkpoint_every=20, measure_every=20)
  # Rates are constants of compiled programs, which experiments share if they have the same.
  config.pretrain.update(learning_rate=1e-3, muon_learning_rate=0.02)
  config.measure.update(num_chunks=16, num_inputs=32, num_documents=2, batch_size=16)
  config.measure.prompts = min(config.measure.prompts, 2)
  config.downstream.update(length=9, num_train=64, num_validation=32, num_test=64)
  config.downstream.num_positions = min(config.downstream.num_positions, 10)
  config.prompt.length = 4
  for tuning in _schedules(config):
    tuning.update(num_epochs=1, batch_size=8, warmup_steps=4)
  config.restarts.update(number=2, steps_factor=2)
  config.plan = tuple(point | dict(num_states=(), step=0) for point in config.plan)
  config.masks.number = 3
  config.neighbours.num_texts = 100
