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
