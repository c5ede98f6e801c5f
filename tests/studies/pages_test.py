"""Tables beside the records in docs/results are those that the records make now; the gallery has every figure."""

import io

import pandas as pd
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


def test_a_table_has_its_cells_and_its_title():
  """The verification of theorems: 26 constructions, of which the five right ones have no wrong sequence."""
  text = pages.tables(pages.RESULTS / 'theory')['constructions.csv']
  frame = pd.read_csv(io.StringIO(text))
  assert len(frame) == 26 and (frame['wrong'][frame['construction'] == 'right'] == '0').sum() == 5
  assert 'beside the posterior' in frame['title'][0] and frame['title'][1:].isna().all()


def test_the_gallery_has_every_figure():
  assert pages.gallery() == pages.GALLERY.read_text()
  assert all(f'(results/{path.relative_to(pages.RESULTS)})' in pages.gallery() for path in pages.RESULTS.rglob('*.png'))
