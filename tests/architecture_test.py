"""The house: configs -> experiments -> hmm_jax, and a file imports only from files above it in its list."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
LIBRARY = [
  'compilation',
  'number_formats',
  'inference',
  'hmm',
  'memory_hmm',
  'example',
  'model',
  'outputs',
  'tasks',
  'masking',
  'bert',
  'heads',
  'attention_head',
  'sharding',
  'optimizer',
  'pretrain',
  'tuning',
]
THEORY = [
  'assumptions',
  'recovery',
  'separability',
  'rationals',
  'structured',
  'imperfect',
  'counterexamples',
]
EXPERIMENTS_THEORY = [
  'settings',
  'evaluation',
  'certificates',
  'hmm_file',
  'examination',
  'verification',
  'problems',
  'side_by_side',
  'impossibility',
  'imperfection',
  'bert_study',
  'tables',
  'drawing',
  'study',
]
EXPERIMENTS = [
  'cache',
  'settings',
  'config',
  'checkpoints',
  'progress',
  'environment',
  'pretraining',
  'downstream',
  'tuned',
  'trial',
  'results',
  'report',
  'figures',
  'sweep',
  'benchmark',
  'pasture',
  'main',
]


def _imported(path):
  """Dotted names of the modules that a file imports."""
  names = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.ImportFrom):
      names |= {f'{node.module}.{alias.name}' for alias in node.names} | {node.module}
    elif isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
  return names


@pytest.mark.parametrize(
  ('package', 'order'),
  [
    ('hmm_jax', LIBRARY),
    ('hmm_jax/theory', THEORY),
    ('experiments', EXPERIMENTS),
    ('experiments/theory', EXPERIMENTS_THEORY),
  ],
)
def test_a_file_imports_only_from_files_above_it(package, order):
  """Every module stands in its package's list, and imports from its package only what stands above it."""
  modules = {path.stem for path in (ROOT / package).glob('*.py')} - {'__init__'}
  assert modules <= set(order)
  for module in modules:
    above = set(order[: order.index(module)])
    for name in _imported(ROOT / package / f'{module}.py'):
      inside, _, rest = name.partition(package.replace('/', '.') + '.')
      first = rest.split('.')[0]
      if not inside and first in order:
        assert first in above, f'{package}/{module}.py imports {name}'


@pytest.mark.parametrize(
  ('package', 'forbidden'),
  [
    ('hmm_jax', {'configs', 'experiments', 'ml_collections', 'absl', 'orbax', 'rich', 'matplotlib', 'pathlib', 'os'}),
    ('configs', {'experiments', 'hmm_jax', 'jax'}),
    ('experiments', {'configs'}),
  ],
)
def test_rooms_do_not_reach_across(package, forbidden):
  """The library knows nothing of configs, files or flags, and configs are data."""
  for path in (ROOT / package).rglob('*.py'):
    roots = {name.split('.')[0] for name in _imported(path)}
    assert not roots & forbidden, f'{path} imports {roots & forbidden}'


def test_nothing_in_the_library_imports_the_theory():
  """The theory stands on the library: no module directly in hmm_jax, its public names included, imports it."""
  for path in (ROOT / 'hmm_jax').glob('*.py'):
    uses = {name for name in _imported(path) if f'{name}.'.startswith('hmm_jax.theory.')}
    assert not uses, f'{path} imports {uses}'


def test_configdict_is_read_in_config_alone():
  """No other file of the experiments touches a ConfigDict."""
  for path in (ROOT / 'experiments').glob('*.py'):
    uses = {name for name in _imported(path) if name.startswith('ml_collections')}
    if path.stem not in ('config', 'main'):
      assert not uses, path
