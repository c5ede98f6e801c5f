"""The methods of tuning, each named here once: what it trains, and its look in tables and figures."""

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
WITHOUT_BERT = ('exact', 'own', NONE)


class Method(NamedTuple):
  """One way to solve a downstream task: what is trained, on which models, and its look in figures.

  Attributes:
    label: what tables and figures call it.
    reads: what its head is a function of, unless it is the user's own: 'mask' is the token probabilities at the [MASK],
      'sequence' those of all positions with the tokens there, 'probs' without the tokens, 'tokens' only these,
      'representation' what the model's prediction at the [MASK] is read out of, 'nearest' the tokens nearest the [MASK]
      without any model, 'masks' the token probabilities at each of several [MASK]s.
    colour: of its line, after Okabe and Ito: distinct under deuteranopia, and in grey where marker and dash are equal.
    marker: of its line.
    dash: of its line.
    settings: the groups of settings that decide its result, beside those of the trial; the first is the schedule, if it
      is trained step by step.
    fit: 'schedule': trained by its schedule; 'restarts': by a longer one from several starts, of which validation
      chooses; 'converged': the optimum on training inputs; 'whitened': likewise, after whitening these; 'on_test': the
      optimum on the test inputs themselves, a bound for any training; 'table': the commonest training labels.
    models: on which it makes sense.
    refits: whether the trained head is replaced by a 'whitened' one behind the trained prompt.
    profiles: whether its records compare attention weights with concentration.
    shifts: whether its prompt is one vector that is added to the last activation, in place of rows of the text.
  """

  label: str
  reads: str
  colour: str
  marker: str
  dash: str
  settings: tuple[str, ...]
  fit: str = 'schedule'
  models: tuple[str, ...] = ('bert', 'exact', 'own')
  refits: bool = False
  profiles: bool = False
  shifts: bool = False

  @property
  def prompt(self) -> bool:
    """True if a prompt is trained with the head."""
    return 'prompt' in self.settings

  @property
  def finetunes(self) -> bool:
    """True if the model's own parameters are trained with the head."""
    return 'finetune' in self.settings

  @property
  def has_schedule(self) -> bool:
    """True if it is trained step by step."""
    return self.fit in ('schedule', 'restarts')

  @property
  def is_one_schedule(self) -> bool:
    """True if its fit is what one run of its schedule trains, as in the paper."""
    return self.fit == 'schedule' and not self.refits


# In the order in which tables and legends name them.
METHODS = {
  'head': Method('head', 'mask', '#0072B2', 's', '--', ('head',), models=_LANGUAGE_MODELS),
  'own_head': Method('own head', 'mask', '#999933', 'X', ':', ('head',), models=_LANGUAGE_MODELS),
  'prompt': Method('prompt', 'mask', '#E69F00', 'o', '-', ('prompt',), models=_LANGUAGE_MODELS),
  'inner_prompt': Method('inner prompt', 'mask', '#332288', 'h', '-', ('prompt',)),
  'shift': Method(
    'constant shift',
    'mask',
    '#661100',
    '>',
    '--',
    ('prompt',),
    models=('bert', 'untrained', 'other_bert', 'own'),
    shifts=True,
  ),
  # A head like any other, so that it is trained as one.
  'probe': Method('probe', 'representation', '#009E73', '^', ':', ('head',), models=_LANGUAGE_MODELS),
  'finetune': Method('finetune', 'mask', '#D55E00', 'D', '-.', ('finetune',), models=('bert', 'own')),
  'attention': Method('attention', 'sequence', '#000000', 'P', '-', ('attention',), profiles=True),
  'prompt_attention': Method('prompt + attention', 'sequence', '#56B4E9', 'X', '-.', ('prompt', 'attention')),
  'head_best': Method('best head', 'mask', '#0072B2', '*', ':', ('on_test', 'converged'), 'on_test', ('exact',)),
  'head_converged': Method('raw converged head', 'mask', '#0072B2', 'd', '-', ('converged',), 'converged'),
  'head_whitened': Method('converged head', 'mask', '#0072B2', 'p', '-.', ('converged',), 'whitened'),
  'probe_converged': Method(
    'converged probe',
    'representation',
    '#009E73',
    'v',
    '-',
    ('converged',),
    'whitened',
    ('bert', 'untrained', 'own'),
  ),
  'attention_converged': Method(
    'converged attention', 'sequence', '#000000', '*', '--', ('attention', 'restarts'), 'restarts'
  ),
  'oracle_prompt': Method(
    'oracle prompt', 'mask', '#E69F00', '*', '--', ('prompt', 'restarts'), 'restarts', ('exact',)
  ),
  'prompt_refit': Method('prompt, converged head', 'mask', '#44AA99', 'd', ':', ('prompt', 'converged'), refits=True),
  'oracle_refit': Method(
    'oracle prompt, converged head',
    'mask',
    '#E69F00',
    'd',
    '-.',
    ('prompt', 'restarts', 'converged'),
    'restarts',
    ('exact',),
    refits=True,
  ),
  'attention_blind': Method('attention without tokens', 'probs', '#AA4499', 'v', ':', ('attention',)),
  'attention_constant': Method(
    'attention on constant G', 'tokens', '#882255', '<', '-.', ('attention',), models=('exact',)
  ),
  'masks': Method('masks', 'masks', '#CC79A7', 'p', '-', ('head', 'masks')),
  'masks_converged': Method('masks, converged head', 'masks', '#CC79A7', 'h', ':', ('masks', 'converged'), 'whitened'),
  'table': Method('table of tokens', 'nearest', '#000000', 'D', '--', (), 'table', (NONE,)),
  'tokens': Method('logistic on tokens', 'nearest', '#882255', '<', '-', ('converged',), 'converged', (NONE,)),
}

# Inputs of an attention head, whole or in part.
OF_SEQUENCE = ('sequence', 'probs', 'tokens')

# Methods of the main table and figures: the paper's protocol, fitted by schedule and no control that reads only a part
# of what a model gives, and readers without a model beside it.
MAIN = tuple(
  name
  for name, method in METHODS.items()
  if method.reads == 'nearest' or (method.is_one_schedule and method.reads not in ('probs', 'tokens'))
)
