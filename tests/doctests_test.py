"""Every public name has an example that runs: those on the pages of docs/api, which `import hmm_jax` offers or not."""

import doctest
import importlib
import inspect
import sys

from conftest import DOCS
import pytest

from docs import conf

pytestmark = pytest.mark.docs

PAGES = sorted((DOCS / 'api').glob('*.md'))
NAMES = [name for page in PAGES for name in conf.public_names(page.read_text())]


def test_the_api_pages_have_every_public_name():
  library = importlib.import_module('hmm_jax')
  offered = {name for name in library.__all__ if not inspect.ismodule(getattr(library, name))}
  assert {name for module, name in NAMES if module == 'hmm_jax'} == offered


@pytest.mark.parametrize(('module', 'name'), NAMES, ids=lambda word: word)
def test_a_public_name_has_an_example_that_runs(module, name):
  found = getattr(importlib.import_module(module), name)
  # As `python -m doctest` would run it.
  names = dict(vars(sys.modules[found.__module__]))
  examples = doctest.DocTestParser().get_doctest(found.__doc__, names, name, None, None)
  assert examples.examples, f'{module}.{name} has no example'
  assert not doctest.DocTestRunner(verbose=False).run(examples).failed
