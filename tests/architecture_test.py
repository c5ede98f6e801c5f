"""The house beside what `lint-imports` checks by the contracts in pyproject.toml: links, names."""

import ast
import re

from conftest import DOCS, ROOT


def test_every_file_that_pages_link_to_is_there():
  """At the top and in docs, folders below included."""
  for page in (*ROOT.glob('*.md'), *DOCS.rglob('*.md')):
    for link in re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', page.read_text()):
      assert (page.parent / link).exists(), f'{page} links to {link}'


def test_nothing_asks_which_model_it_has():
  """What works on one model works on the other: no name of a model is compared with any."""
  for path in [*(ROOT / 'hmm_jax').rglob('*.py'), *(ROOT / 'experiments').rglob('*.py')]:
    for node in ast.walk(ast.parse(path.read_text())):
      assert not (isinstance(node, ast.Compare) and 'model.name' in ast.unparse(node)), f'{path}: {ast.unparse(node)}'
