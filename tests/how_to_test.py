"""The pages of docs/how_to do what they say: the Python blocks of each run one after another, in one namespace.

A page runs in a temporary folder with a link to `docs`. So it reads committed records by the paths that a reader has
from the root of the repository, and writes where nothing is left behind. `<!-- needs: MODULE -->` on its first line
skips it where the module is missing.
"""

import pathlib
import re
import time

import pytest

pytestmark = pytest.mark.docs

DOCS = pathlib.Path(__file__).parents[1] / 'docs'
PAGES = sorted((DOCS / 'how_to').glob('*.md'))
# Of CPU, of all pages together.
_MOST_SECONDS = 90


@pytest.fixture(scope='module')
def begun():
  begun = time.process_time()
  yield
  assert time.process_time() - begun < _MOST_SECONDS


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.stem)
def test_a_page_runs_as_it_stands(page, begun, tmp_path, monkeypatch):
  text = page.read_text()
  if needs := re.match(r'<!-- needs: (\w+) -->', text):
    pytest.importorskip(needs[1])
  blocks = list(re.finditer(r'^```python\n(.*?)^```$', text, re.DOTALL | re.MULTILINE))
  assert blocks
  (tmp_path / 'docs').symlink_to(DOCS)
  monkeypatch.chdir(tmp_path)
  # What a page writes as a module is found, as `python -m` finds it.
  monkeypatch.syspath_prepend(tmp_path)
  names = {'__name__': page.stem}
  for block in blocks:
    # Errors are told by their line of the page.
    code = '\n' * text.count('\n', 0, block.start(1)) + block[1]
    exec(compile(code, str(page), 'exec'), names)
