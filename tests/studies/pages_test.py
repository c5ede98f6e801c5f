"""The tables of the pages are those that the records in docs/results make now."""

import pytest

from experiments.studies import pages

WITH_TABLES = [page for page in pages.PAGES if pages.TABLE.search(page.read_text())]


@pytest.mark.parametrize('page', WITH_TABLES, ids=lambda page: page.name)
def test_no_table_of_a_page_is_stale(page):
  text = page.read_text()
  assert pages.filled(text) == text
  # A number that is not that of the records is seen.
  where = text.index('\n|', text.index('<!-- table ')) + 2
  assert pages.filled(f'{text[:where]}1{text[where:]}') == text


def test_a_table_that_is_nowhere_is_named(capsys, monkeypatch, tmp_path):
  page = tmp_path / 'page.md'
  page.write_text('<!-- table accuracy of nowhere -->\n<!-- end -->\n')
  monkeypatch.setattr(pages, 'PAGES', (page,))
  assert pages.main([]) == 2
  assert str(page) in capsys.readouterr().err and page.read_text().count('\n') == 2
