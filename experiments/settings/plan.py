"""The plan of an experiment, written down before its runs: end points, each with the range that is expected."""

from experiments.settings.fields import Group, setting


class EndPoint(Group):
  """A mean over HMMs in points: a field of one fit, less that of others on the same tasks, and its expected range.

  It is held if its 95% interval lies in the range, not held if it lies outside, else undecided.
  """

  name: str = setting('what it is called')
  first: tuple[str, ...] = setting('model and method of the fit')
  second: tuple[str, ...] = setting(
    'model and methods of the fits to compare, the best on each task; (): none',
    earlier=(),
    may_be_empty=True,
  )
  num_states: tuple[int, ...] = setting('sizes |H|; (): all', earlier=(), may_be_empty=True)
  field: str = setting('field of records of the first fit', earlier='accuracy')
  second_field: str = setting("likewise of the second; '': the same", earlier='')
  times: float = setting('factor of the second', earlier=1.0)
  step: int = setting('pretraining step that the fits read; 0: the last', earlier=0, least=0)
  above: tuple[float, ...] = setting(
    'lower end of the expected range; (): none', earlier=(), least=-100, may_be_empty=True
  )
  below: tuple[float, ...] = setting('its upper end', earlier=(), least=-100, may_be_empty=True)
