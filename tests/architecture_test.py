"""The house: configs -> experiments -> hmm_jax, and a file imports only from files above it in its list."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
# The modules of a room and of the rooms inside it, in one order.
LIBRARY = [
  'compilation',
  'float64',
  'blocks',
  'messages',
  'inference',
  'viterbi',
  'hmm',
  'sampling',
  'memory_hmm',
  'example_4_1',
  'model',
  'tasks',
  'masking',
  'sharding',
  'bert',
  'heads',
  'converged',
  'optimizer',
  'pretrain',
  'bayes_gap',
  'tuning',
  'theory.assumptions',
  'theory.rationals',
  'theory.exact_algebra',
  'theory.tables',
  'theory.separability',
  'theory.kl_certificate',
  'theory.best_head',
  'theory.structured',
  'theory.recovery',
  'theory.reciprocals',
  'theory.constant_prompt',
  'theory.exact_chain',
  'theory.reachable',
  'theory.exact_recovery',
  'theory.no_prompt',
  'theory.lemmas',
  'theory.state_lemmas',
  'theory.memory_lemmas',
  'theory.adversary',
  'theory.texts',
  'theory.padding',
  'theory.enumeration',
  'theory.scoring',
  'theory.theorems',
  'theory.families',
  'theory.mutants',
  'theory.certificates',
  'theory.degradation',
  'theory.counterexamples',
  'theory.gap',
]
EXPERIMENTS = [
  'cache',
  'fields',
  'machine',
  'methods',
  'groups',
  'settings',
  'theory.settings',
  'statuses',
  'distributed',
  'signals',
  'files',
  'pages',
  'loading',
  'manifests',
  'checkpoints',
  'finite',
  'timing',
  'progress',
  'claims',
  'environment',
  'failures',
  'results',
  'kept',
  'communication',
  'cost',
  'memory',
  'pretraining',
  'downstream',
  'fitted',
  'tuned',
  'side_by_side',
  'trial',
  'disk',
  'report',
  'figures',
  'budget',
  'sweep',
  'overview',
  'engines',
  'recipes',
  'benchmark.settings',
  'benchmark.measure',
  'benchmark.loops',
  'benchmark.inference',
  'benchmark.sampling',
  'benchmark.products',
  'benchmark.hugging_face',
  'benchmark.training',
  'benchmark.accelerator',
  'benchmark.report',
  'benchmark.study',
  'benchmark.page',
  'parts',
  'example_4_1',
  'degradation.settings',
  'degradation.problems',
  'degradation.models',
  'degradation.methods',
  'degradation.contrasts',
  'degradation.report',
  'degradation.sentences',
  'degradation.study',
  'degradation.page',
  'theory.comparison',
  'theory.problems',
  'theory.verification',
  'theory.impossibility',
  'theory.appendix',
  'theory.prevalence',
  'theory.tables',
  'theory.verification_report',
  'theory.appendix_report',
  'theory.impossibility_report',
  'theory.prevalence_report',
  'theory.report',
  'theory.page',
  'theory.examine',
  'theory.study',
  'which_theorem.settings',
  'which_theorem.grid',
  'which_theorem.linearity',
  'which_theorem.prompts',
  'which_theorem.certificate',
  'which_theorem.report',
  'which_theorem.prompts_report',
  'which_theorem.accuracy',
  'which_theorem.sentences',
  'which_theorem.study',
  'which_theorem.page',
  'faults.settings',
  'faults.inputs',
  'faults.by_hand',
  'faults.watch',
  'faults.changes',
  'faults.processes',
  'faults.bench',
  'faults.kills',
  'faults.damage',
  'faults.full_disk',
  'faults.races',
  'faults.signals',
  'faults.not_finite',
  'faults.resuming',
  'faults.soak',
  'faults.refused',
  'faults.report',
  'faults.sentences',
  'faults.study',
  'registry',
  'config',
  'refusals',
  'faults.every_input',
  'faults.page',
  'verify',
  'evidence_page',
  'cost_report',
  'communication_report',
  'scale_report',
  'usage',
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


@pytest.mark.parametrize(('package', 'order'), [('hmm_jax', LIBRARY), ('experiments', EXPERIMENTS)])
def test_a_file_imports_only_from_files_above_it(package, order):
  """Every module stands in the list of its room, and imports from the room only what stands above it."""
  paths = {path for path in (ROOT / package).rglob('*.py') if path.stem != '__init__'}
  names = {'.'.join(path.relative_to(ROOT / package).with_suffix('').parts): path for path in paths}
  assert set(names) <= set(order)
  for module, path in names.items():
    below = {f'{package}.{name}' for name in order[order.index(module) :]}
    for name in _imported(path):
      # A name imported from a module may itself be one.
      imported = {name, name.rpartition('.')[0]} & below
      assert not imported, f'{path} imports {imported}'


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
  """No other file of the experiments touches a ConfigDict, but for those that get it from a flag or print it."""
  for path in (ROOT / 'experiments').rglob('*.py'):
    uses = {name for name in _imported(path) if name.startswith('ml_collections')}
    if path.relative_to(ROOT / 'experiments').parts not in (
      ('config.py',),
      ('cost_report.py',),
      ('usage.py',),
      ('main.py',),
    ):
      assert not uses, path


def test_the_readme_is_short_and_whole():
  """At most 140 lines, nothing left to fill in, and every file that pages link to is there."""
  readme = (ROOT / 'README.md').read_text()
  assert len(readme.splitlines()) <= 140 and not re.search('@[A-Z]+@', readme)
  for page in (ROOT / 'README.md', *(ROOT / 'docs').glob('*.md')):
    links = re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', page.read_text())
    assert page.name != 'README.md' or links
    for link in links:
      assert (page.parent / link).exists(), f'{page.name} links to {link}'


def test_nothing_asks_which_model_it_has():
  """What works on one model works on the other: no name of a model is compared with any."""
  for path in [*(ROOT / 'hmm_jax').rglob('*.py'), *(ROOT / 'experiments').rglob('*.py')]:
    for node in ast.walk(ast.parse(path.read_text())):
      assert not (isinstance(node, ast.Compare) and 'model.name' in ast.unparse(node)), f'{path}: {ast.unparse(node)}'
