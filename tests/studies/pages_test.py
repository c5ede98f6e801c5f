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


def test_a_flag_is_refused(capsys, monkeypatch):
  """In a sentence, with the status of bad input, before anything is written."""
  monkeypatch.setattr(pages.files, 'write_whole', None)
  assert pages.main(['--check']) == 2
  assert capsys.readouterr() == ('', "error: '--check' is a stray argument; valid is none\n")


def test_every_link_to_a_figure_has_its_file():
  for page in pages.PAGES:
    for link in pages.re.findall(r'!\[[^]]*\]\(([^)]+)\)', page.read_text()):
      assert (page.parent / link).exists(), f'{page.name}: {link}'


@pytest.mark.parametrize('name', ['nothing of small/figure_3_left', 'accuracy of nowhere'])
def test_a_table_that_is_nowhere_is_named(capsys, monkeypatch, tmp_path, name):
  page = tmp_path / 'page.md'
  page.write_text(f'<!-- table {name} -->\n<!-- end -->\n')
  monkeypatch.setattr(pages, 'PAGES', (page,))
  assert pages.main([]) == 2
  assert str(page) in capsys.readouterr().err and page.read_text().count('\n') == 2
