"""The tables of the pages are those that the records in docs/results make now."""

import re

from conftest import DOCS
import pytest

from experiments.studies import pages

# The tables of thousands of records take ten seconds.
WITH_TABLES = [
  pytest.param(page, marks=[pytest.mark.slow] * (page.name in ('figure_3.md', 'findings.md')), id=page.name)
  for page in pages.PAGES
  if pages.TABLE.search(page.read_text())
]


@pytest.mark.parametrize('page', WITH_TABLES)
def test_no_table_of_a_page_is_stale(page):
  text = page.read_text()
  assert pages.filled(text) == text
  # A number that is not that of the records is seen.
  table = pages.TABLE.search(text)[0]
  assert pages.filled(table.replace('\n|', '\n|1', 1)) == table


def test_the_gallery_has_every_figure():
  """Of records; tutorials show their own."""
  found = {str(path.relative_to(DOCS)) for path in DOCS.glob('results/**/*.png')}
  assert found == {*re.findall(r'\]\((.*png)\)', (DOCS / 'gallery.md').read_text())}
  assert pages.folders() >= {path.partition('/')[2].rpartition('/')[0] for path in found}


def test_an_unknown_table_is_named(capsys, monkeypatch, tmp_path):
  page = tmp_path / 'page.md'
  page.write_text('<!-- table accuracy of nowhere -->\n<!-- end -->\n')
  monkeypatch.setattr(pages, 'PAGES', (page,))
  assert pages.main([]) == 2
  assert str(page) in capsys.readouterr().err and page.read_text().count('\n') == 2
