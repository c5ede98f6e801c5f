"""The plan of an experiment, written down before its runs: end points, each with the range that is expected."""

from experiments.settings.fields import Group, setting
from experiments.settings.methods import METHODS, MODELS

# Fields of records that an end point may be of: shares, shown in points, and distances in nats.
SHARES = (
  'accuracy',
  'clear_accuracy',
  'majority_accuracy',
  'other_task_accuracy',
  'train_accuracy',
  'validation_accuracy',
  'tv_at_mask',
  'tv_over_positions',
  'tv_moved',
  'tv_moved_by_text',
  'tv_moved_by_random',
  'tv_movable',
)
NATS = ('kl_at_mask', 'kl_over_positions', 'excess_mlm_loss', 'mlm_loss', 'unigram_gap')


class EndPoint(Group):
  """A mean over HMMs in points: a field of one fit, less that of others on the same tasks, and its expected range.

  It is held if its 95% interval lies in the range, not held if it lies outside, else undecided.
  """

  name: str = setting('what it is called')
  first: tuple[str, ...] = setting('model and method of the fit')
  second: tuple[str, ...] = setting(
    'model and methods of the fits to compare, the largest on each task; (): none',
    earlier=(),
    may_be_empty=True,
  )
  num_states: tuple[int, ...] = setting('sizes |H|; (): all', earlier=(), may_be_empty=True)
  field: str = setting('field of records of the first fit', earlier='accuracy', choices=SHARES + NATS)
  second_field: str = setting("likewise of the second; '': the same", earlier='', choices=('', *SHARES, *NATS))
  times: float = setting('factor of the second', earlier=1.0)
  step: int = setting('pretraining step that the fits read; 0: the last', earlier=0, least=0)
  above: tuple[float, ...] = setting(
    'lower end of the expected range, the largest of several; (): none', earlier=(), least=-100, may_be_empty=True
  )
  below: tuple[float, ...] = setting('its upper end, the least of several', earlier=(), least=-100, may_be_empty=True)

  def check_fields(self) -> None:
    self.require('first', len(self.first) == 2 and _is_fit(self.first), 'a model and a method')
    self.require('second', not self.second or _is_fit(self.second), 'a model and methods, or ()')


def _is_fit(names: tuple[str, ...]) -> bool:
  model, *methods = names
  return model in MODELS and bool(methods) and set(methods) <= set(METHODS)
