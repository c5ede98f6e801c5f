"""Tables beside the records in docs/results are those that the records make now; the gallery has every figure."""

import pytest

from experiments.studies import pages

# The tables of thousands of records take seconds.
_SLOW = {'figure_3_left', 'drawn', 'masked'}
FOLDERS = [
  pytest.param(folder, marks=[pytest.mark.slow] * (folder.name in _SLOW), id=str(folder.relative_to(pages.RESULTS)))
  for folder in pages.folders()
]


@pytest.mark.parametrize('folder', FOLDERS)
def test_no_table_is_stale_or_left_over(folder):
  assert pages.tables(folder) == {path.name: path.read_text() for path in folder.glob('*.csv')}


def test_the_gallery_has_every_figure():
  assert pages.gallery() == pages.GALLERY.read_text()
  assert all(f'(results/{path.relative_to(pages.RESULTS)})' in pages.gallery() for path in pages.RESULTS.rglob('*.png'))
