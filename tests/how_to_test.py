"""The pages of docs/how_to and docs/library.md do what they say: their Python blocks run one after another.

A page runs in a temporary folder with a link to `docs`. So it reads committed records by the paths that a reader has
from the root of the repository, and writes where nothing is left behind. `<!-- needs: MODULE -->` on its first line
skips it where the module is missing. All pages together take two CPU minutes at most.
"""

import re

from conftest import DOCS
import pytest


@pytest.mark.docs
@pytest.mark.parametrize('page', [DOCS / 'library.md', *sorted(DOCS.glob('how_to/*.md'))], ids=lambda page: page.stem)
def test_a_page_runs_as_it_stands(page, tmp_path, monkeypatch):
  text, names = page.read_text(), {'__name__': page.stem}
  if needs := re.match(r'<!-- needs: (\w+) -->', text):
    pytest.importorskip(needs[1])
  (tmp_path / 'docs').symlink_to(DOCS)
  monkeypatch.chdir(tmp_path)
  # A module that a page writes is found, as `python -m` finds it.
  monkeypatch.syspath_prepend(tmp_path)
  blocks = re.findall(r'^```python\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
  for block in blocks:
    exec(block, names)
