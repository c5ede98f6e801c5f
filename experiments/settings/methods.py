"""The methods of tuning, each named here once: its settings, and its look in tables and figures."""

from typing import NamedTuple

# The models for tuning, with their names in tables: the pretrained BERT, the exact model, the BERT that pretraining
# starts from, the pretrained BERT of another draw of the same size, the user's own model, and none, in records of
# methods that use no model.
MODEL_NAMES = {
  'bert': 'BERT',
  'exact': 'exact G',
  'untrained': 'untrained BERT',
  'other_bert': 'BERT of another HMM',
  'own': 'own model',
  'none': 'no model',
}
MODELS = tuple(MODEL_NAMES)
NONE = 'none'
_LANGUAGE_MODELS = tuple(name for name in MODELS if name != NONE)
# Those with an activation that a prediction is decoded from.
_DECODERS = ('bert', 'untrained', 'other_bert', 'own')
WITHOUT_BERT = ('exact', 'own', NONE)


class Method(NamedTuple):
  """One way to solve a downstream task: its settings, its models and its look; `pipeline.methods` says what it does.

  Attributes:
    label: what tables and figures call it.
    colour: of its line, after Okabe and Ito: distinct under deuteranopia, and in grey where marker and dash are equal.
    marker: of its line.
    dash: of its line.
    settings: the groups of settings that decide its result, beside those of the trial; the first is the schedule, if it
      is trained step by step.
    models: on which it makes sense.
    is_control: whether its head reads only a part of what a model gives.
    shifts: whether its prompt is one vector that is added to the last activation, in place of rows of the text.
  """

  label: str
  colour: str
  marker: str
  dash: str
  settings: tuple[str, ...]
  models: tuple[str, ...] = ('bert', 'exact', 'own')
  is_control: bool = False
  shifts: bool = False

  @property
  def has_schedule(self) -> bool:
    """True if it is trained step by step."""
    return not _SCHEDULES.isdisjoint(self.settings)

  @property
  def is_one_schedule(self) -> bool:
    """True if its fit is what one run of its schedule trains, as in the paper."""
    return self.has_schedule and _FURTHER_FITS.isdisjoint(self.settings)


# Groups of settings that train step by step, and those of a fit beyond one such training.
_SCHEDULES = {'head', 'finetune', 'prompt', 'attention'}
_FURTHER_FITS = {'restarts', 'converged'}

# In the order in which tables and legends name them.
METHODS = {
  'head': Method('head', '#0072B2', 's', '--', ('head',), _LANGUAGE_MODELS),
  'own_head': Method('own head', '#999933', 'X', ':', ('head',), _LANGUAGE_MODELS),
  'prompt': Method('prompt', '#E69F00', 'o', '-', ('prompt',), _LANGUAGE_MODELS),
  'inner_prompt': Method('inner prompt', '#332288', 'h', '-', ('prompt',)),
  'shift': Method('constant shift', '#661100', '>', '--', ('prompt',), _DECODERS, shifts=True),
  'probe': Method('probe', '#009E73', '^', ':', ('head',), _LANGUAGE_MODELS),
  'finetune': Method('finetune', '#D55E00', 'D', '-.', ('finetune',), ('bert', 'own')),
  'attention': Method('attention', '#000000', 'P', '-', ('attention',)),
  'prompt_attention': Method('prompt + attention', '#56B4E9', 'X', '-.', ('prompt', 'attention')),
  'head_best': Method('best head', '#0072B2', '*', ':', ('on_test', 'converged'), ('exact',)),
  'head_converged': Method('raw converged head', '#0072B2', 'd', '-', ('converged',)),
  'head_whitened': Method('converged head', '#0072B2', 'p', '-.', ('converged',)),
  'mlp': Method('hidden layer', '#CC3311', 'd', '--', ('head', 'mlp'), _LANGUAGE_MODELS),
  'mlp_converged': Method('converged hidden layer', '#CC3311', '*', ':', ('head', 'mlp', 'restarts'), _LANGUAGE_MODELS),
  'quadratic': Method('quadratic head', '#CC3311', 'p', '-', ('converged',), _LANGUAGE_MODELS),
  'posterior': Method('exact posterior', '#000000', '^', ':', ('converged',), ('exact',)),
  'neighbours': Method('nearest G', '#117733', '<', ':', ('neighbours',), ('exact',)),
  'probe_converged': Method('converged probe', '#009E73', 'v', '-', ('converged',), ('bert', 'untrained', 'own')),
  'probe_ridge': Method('ridge probe', '#009E73', 'D', '-.', ('converged',), ('bert', 'untrained', 'own')),
  'attention_converged': Method('converged attention', '#000000', '*', '--', ('attention', 'restarts')),
  'oracle_prompt': Method('oracle prompt', '#E69F00', '*', '--', ('prompt', 'restarts'), ('exact',)),
  'prompt_refit': Method('prompt, converged head', '#44AA99', 'd', ':', ('prompt', 'converged')),
  'oracle_refit': Method(
    'oracle prompt, converged head', '#E69F00', 'd', '-.', ('prompt', 'restarts', 'converged'), ('exact',)
  ),
  'attention_blind': Method('attention without tokens', '#AA4499', 'v', ':', ('attention',), is_control=True),
  'attention_constant': Method(
    'attention on constant G', '#882255', '<', '-.', ('attention',), ('exact',), is_control=True
  ),
  'masks': Method('masks', '#CC79A7', 'p', '-', ('head', 'masks')),
  'masks_converged': Method('masks, converged head', '#CC79A7', 'h', ':', ('masks', 'converged')),
  'table': Method('table of tokens', '#000000', 'D', '--', (), (NONE,)),
  'tokens': Method('logistic on tokens', '#882255', '<', '-', ('converged',), (NONE,)),
  'tokens_ridge': Method('ridge on all tokens', '#882255', 's', ':', ('converged',), (NONE,)),
  'window': Method('window of tokens', '#882255', '>', '-.', ('converged',), (NONE,)),
  'window_quadratic': Method('pairs of tokens', '#882255', 'v', ':', ('converged',), (NONE,)),
}

# Methods of the main table and figures: the paper's protocol, fitted by schedule and no control, and readers without a
# model beside it.
MAIN = tuple(
  name
  for name, method in METHODS.items()
  if method.models == (NONE,) or (method.is_one_schedule and not method.is_control)
)
