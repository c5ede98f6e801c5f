"""All bad inputs, by kind, and what is wrong with how each is refused.

It imports every experiment, and so the campaign itself, which runs it by its name in a process of its own.
"""

from collections.abc import Iterator
import warnings

from experiments.settings import config as config_lib
from experiments.studies.faults import by_hand, changes, inputs
from experiments.studies.faults.inputs import Bad
from experiments.studies.registry import EXPERIMENTS

_OWN = 'fields of faults'


def bad_field_values() -> Iterator[Bad]:
  """Every bad value of every field of every experiment that says what it takes."""
  for experiment, module in EXPERIMENTS.items():
    for name, field in config_lib.fields(module.SETTINGS):
      if name not in ('experiment', 'scale'):
        for what, text in inputs.bad_texts(field):
          arguments = (f'--config={experiment}:smoke', '--mode=report', f'--config.{name}={text}')
          yield Bad(f'{what} for {name}', arguments, (name, 'valid is'), inputs.shown(text))


def chosen(every: int) -> dict[str, list[Bad]]:
  """By kind all that was written by hand, and of the bad values of fields those that are so far apart."""
  found: dict[str, list[Bad]] = {}
  for bad in list(bad_field_values())[::every]:
    experiment = bad.arguments[0].removeprefix('--config=').partition(':')[0]
    found.setdefault(f'fields of {experiment}', []).append(bad)
  return found | {kind: list(each()) for kind, each in by_hand.KINDS.items()}


def answer(every: int, without: str) -> dict[str, list[str]]:
  """Of each kind what is wrong with how each input is refused, '' where nothing is; of one with a protection less."""
  warnings.filterwarnings('ignore', "'experiments.main' found in sys.modules", RuntimeWarning)
  changes.make([without])
  kinds = chosen(every)
  # Without its check an input runs what it asks for: those of fields only report, and of the campaign's own none asks
  # for memory or time in that.
  tried = {_OWN: kinds[_OWN]} if without else kinds
  return {kind: [_named(bad) for bad in each] for kind, each in tried.items()}


def _named(bad: Bad) -> str:
  said = inputs.said_of(bad)
  return f'{bad.what}: {said}' if said else ''
