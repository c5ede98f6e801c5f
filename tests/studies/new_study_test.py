"""The worked example of docs/internals/house.md runs, resumes, and its table is that of its records."""

import importlib
import re

from conftest import DOCS
import pytest
from run_cases import flip, QUIET

from experiments.records import load
from experiments.settings import config as config_lib

pytestmark = pytest.mark.slow

PAGE = DOCS / 'internals' / 'house.md'


def test_the_study_of_the_page_runs_and_goes_on(tmp_path, monkeypatch):
  (block,) = re.findall(r'```python\n(.*?)```', PAGE.read_text(), re.DOTALL)
  (tmp_path / 'guess_of_the_page.py').write_text(block)
  monkeypatch.syspath_prepend(tmp_path)
  # Its defaults, of which a report needs only those that it has.
  monkeypatch.setattr(config_lib, '_SHIPPED', tmp_path)
  (tmp_path / 'guess.py').write_text('"""A guess."""\nfrom ml_collections import ConfigDict as get_config')
  page = importlib.import_module('guess_of_the_page')
  common = dict(experiment='guess', scale='small', seed=0, compilation_cache='')
  settings = page.GuessSettings(**common, num_states=(2, 10), num_hmms=3)
  made = []
  guess = page.guess
  monkeypatch.setattr(page, 'guess', lambda size, *rest: made.append(size) or guess(size, *rest))
  page.STUDY.run([settings], tmp_path, QUIET)
  page.STUDY.show(settings, tmp_path, QUIET)
  records = load(tmp_path)
  assert list(records['num_states']) == [2] * 3 + [10] * 3
  mean = 100 * records['accuracy'][3:].mean()
  assert f'{mean:.1f} [' in (tmp_path / 'table.txt').read_text()
  # A part on record is not made again; one that is corrupt is.
  (tmp_path / 'results.jsonl').unlink()
  flip(next(tmp_path.glob('parts/*/H10/records.json')))
  page.STUDY.run([settings], tmp_path, QUIET)
  assert made == [2, 10, 10] and load(tmp_path).equals(records)
