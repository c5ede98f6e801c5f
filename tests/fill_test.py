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
