"""Outputs of tutorials: a stale page or notebook is named, and filled."""

import pytest

pytest.importorskip('jupytext')

from docs import fill  # noqa: E402

pytestmark = pytest.mark.docs

PAGE = "# Page\n\n```python\nprint(f'{0.5} of', 'x')\n```\n\n```python\ny = 1\n```\n"
FILLED = PAGE.replace("'x')\n```\n", "'x')\n```\n\n<!-- output -->\n```text\n0.5 of x\n```\n<!-- end -->\n")


def test_a_stale_page_is_named_and_filled(tmp_path, monkeypatch, capsys):
  """Numbers may differ by 5%, words may not; filling is idempotent; a block without output gets none."""
  page = tmp_path / 'use' / 'tutorials' / 'page.md'
  page.parent.mkdir(parents=True)
  monkeypatch.setattr(fill, 'DOCS', tmp_path)
  monkeypatch.setenv('PYTHONPATH', '')
  for text, stale in (
    (PAGE, 1),
    (FILLED.replace('\n0.5 of', '\n0.6 of'), 1),
    (FILLED.replace('\n0.5 of', '\n0.51 of'), 0),
  ):
    page.write_text(text)
    assert fill.main(['--check']) == stale
    assert page.read_text() == text and (str(page) in capsys.readouterr().err) == stale
  for _ in range(2):
    assert fill.main([]) == 0 and page.read_text() == FILLED
  assert fill.main(['check']) == 2


def test_a_script_becomes_an_executed_notebook(tmp_path, monkeypatch):
  """It is stale if the script has changed, or prints another number; a cell that raises is an error."""
  script = tmp_path / 'use' / 'tutorials' / 'page.py'
  script.parent.mkdir(parents=True)
  monkeypatch.setattr(fill, 'DOCS', tmp_path)
  monkeypatch.setenv('PYTHONPATH', '')
  made = script.with_suffix('.ipynb')
  script.write_text('# %% [markdown]\n# # A page\n\n# %%\nprint(0.5)\n')
  assert fill.main(['--check']) == 1 and not made.exists()
  assert fill.main([]) == 0 and fill.main(['--check']) == 0
  filled = made.read_bytes()
  assert fill.main([]) == 0 and made.read_bytes() == filled and b'0.5' in filled
  made.write_bytes(filled.replace(b'"0.5', b'"0.6'))
  assert fill.main(['--check']) == 1
  script.write_text('# %%\nraise ValueError\n')
  with pytest.raises(Exception, match='ValueError'):
    fill.main([])
