"""Run things: settings in, records, tables and figures out; docs/internals/house.md is the map.

`main.py` has the flags; the packages stand in the order in which they may import each other, `settings` lowest.
"""

import importlib.util

_NEEDED = ('absl', 'etils', 'filelock', 'matplotlib', 'ml_collections', 'orbax', 'pandas', 'tabulate')
_missing = [name for name in _NEEDED if not importlib.util.find_spec(name)]
if _missing:
  raise ModuleNotFoundError(f"experiments needs {', '.join(_missing)}: pip install -c constraints.txt -e '.[suite]'")
