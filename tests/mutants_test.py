"""Every mutant has its place in the tree as it is now."""

import ast
import collections
import re

from mutants import main, MUTANTS, ROOT
import pytest


@pytest.mark.parametrize('mutant', MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made(mutant):
  """Its text stands in its file once, what replaces it differs and is Python, and its tests are there."""
  mutated = mutant.applied_to((ROOT / mutant.path).read_text())
  assert mutant.new != mutant.old
  ast.parse(mutated)
  file, _, chosen = mutant.tests
  tests = [node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)]
  assert any(word in name for word in re.findall(r'\w+', chosen) for name in tests)


def test_no_two_mutants_share_a_name():
  counts = collections.Counter(mutant.name for mutant in MUTANTS)
  assert [name for name, count in counts.items() if count > 1] == []


def test_a_mutant_that_cannot_be_made_is_an_error(monkeypatch, capsys):
  """Exit code 1 where its text or its file is gone, and 2 where no mutant is of a file of that name."""
  monkeypatch.setattr('mutants.MUTANTS', [MUTANTS[0]._replace(old='no such text'), MUTANTS[0]._replace(path='none.py')])
  assert main(['blocks']) == main(['none']) == 1
  assert capsys.readouterr().out.count('NOT MADE') == 2
  assert main(['blocks', 'hmm']) == 2 and 'no mutants of hmm' in capsys.readouterr().err
