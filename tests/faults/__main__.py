"""python -m tests.faults [KIND ...]: tries all scenarios, or those of some kinds; exit status 1 if one is lost.

The checkout is to stay as it is meanwhile: environments on record name its commit.
"""

import pathlib
import sys
import tempfile
import time

from . import bad_inputs
from .bench import Bench
from .scenarios import SCENARIOS

KINDS = [*dict.fromkeys(scenario.kind for scenario in SCENARIOS), 'inputs']


def main(kinds):
  """Prints what is lost and, at the end, how many of each kind were tried; the exit status."""
  odd = [kind for kind in kinds if kind not in KINDS]
  if odd:
    print(f'{odd[0]!r} is no kind of fault; valid are {", ".join(KINDS)}', file=sys.stderr)
    return 2
  begun, chosen = time.monotonic(), kinds or KINDS
  lost = {kind: [] for kind in chosen}
  scenarios = [scenario for scenario in SCENARIOS if scenario.kind in chosen]
  if scenarios:
    with tempfile.TemporaryDirectory(prefix='faults-') as directory:
      bench = Bench(pathlib.Path(directory))
      print(f'undisturbed, a run takes {bench.seconds:.1f} s', flush=True)
      for scenario in scenarios:
        try:
          _note(lost[scenario.kind], scenario.name, bench.verdict(scenario))
        except PermissionError as error:
          print(f'not tried: {scenario.name}: {error}', flush=True)
  if 'inputs' in chosen:
    for bad in bad_inputs.BAD:
      _note(lost['inputs'], ' '.join(bad.arguments)[:100], bad_inputs.verdict(bad))
  print('| kind | tried | survived | lost |\n| --- | ---: | ---: | ---: |')
  for kind, each in [*lost.items(), ('all', sum(lost.values(), []))]:
    print(f'| {kind} | {len(each)} | {each.count("")} | {len(each) - each.count("")} |')
  print(f'{(time.monotonic() - begun) / 60:.0f} minutes')
  return int(any(map(any, lost.values())))


def _note(lost, name, why):
  lost.append(why)
  if why:
    print(f'lost: {name}: {why}', flush=True)


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
