"""The house beside what `lint-imports` checks by the contracts in pyproject.toml: links, names."""

import ast
import re

from conftest import DOCS, ROOT


def test_links_of_pages_lead_to_files():
  """At the top and in docs, folders below included."""
  for page in (*ROOT.glob('*.md'), *DOCS.rglob('*.md')):
    for link in re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', page.read_text()):
      assert (page.parent / link).exists(), f'{page} links to {link}'


def test_nothing_asks_which_model_it_has():
  """Code that works on one model works on the other: it compares no name of a model."""
  for path in [*(ROOT / 'hmm_jax').rglob('*.py'), *(ROOT / 'experiments').rglob('*.py')]:
    for node in ast.walk(ast.parse(path.read_text())):
      assert not (isinstance(node, ast.Compare) and 'model.name' in ast.unparse(node)), f'{path}: {ast.unparse(node)}'


def test_no_flag_of_xla_is_set_untried():
  """XLA ends a process that names a flag it does not know: those that we have are tried where they are named."""
  folders = ('hmm_jax', 'experiments', 'configs', 'launch', 'tests')
  naming = {
    path
    for folder in folders
    for path in (ROOT / folder).rglob('*.*')
    if b'--xla' in path.read_bytes() and path.suffix != '.pyc'
  }
  assert naming - {*(ROOT / 'tests').glob('*_test.py')} == {
    ROOT / 'experiments/runtime/jax_options.py',
    ROOT / 'tests/conftest.py',
  }
