"""The house beside what `lint-imports` checks by the contracts in pyproject.toml: links, names."""

import ast
import json
import re

from conftest import DOCS, ROOT

from experiments.analysis import grid_figures
from experiments.pipeline import methods
from experiments.settings.methods import METHODS, MODELS


def test_links_of_pages_lead_to_files():
  """At the top and in docs, folders below included."""
  for page in (*ROOT.glob('*.md'), *DOCS.rglob('*.md')):
    for link in re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', page.read_text()):
      assert (page.parent / link).exists(), f'{page} links to {link}'


def test_each_method_and_model_has_all_its_entries():
  """What the map says of a new one: what it does, how it is drawn, and its name in the schema of records."""
  fields = json.loads((DOCS / 'schemas/records/grid.json').read_text())['properties']
  assert methods.WAYS.keys() == METHODS.keys() <= {*fields['method']['enum']}
  assert grid_figures._LOOKS.keys() == {*MODELS} == {*fields['model']['enum']}


def test_nothing_asks_which_model_it_has():
  """Code that works on one model works on the other: it compares no name of a model."""
  for path in [*(ROOT / 'hmm_jax').rglob('*.py'), *(ROOT / 'experiments').rglob('*.py')]:
    for node in ast.walk(ast.parse(path.read_text())):
      assert not (isinstance(node, ast.Compare) and 'model.name' in ast.unparse(node)), f'{path}: {ast.unparse(node)}'
