"""report.html in a real browser, which has no network."""

import json
import os
import shutil

from figures_cases import prompt_records
import numpy as np
from page_cases import NASTY, settings, written
from pandas import DataFrame as frame
import psutil
import pytest
from run_cases import QUIET

from experiments.analysis.page import content
from experiments.studies import registry

# Milliseconds that a busy machine may take to open a page.
_PATIENCE = 300_000
CHROMIUM, IS_REQUIRED = shutil.which('chromium'), bool(os.environ.get('REQUIRE_ENGINES'))
if not IS_REQUIRED:
  pytest.importorskip('playwright')
pytestmark = [
  pytest.mark.browser,
  pytest.mark.skipif(not CHROMIUM and not IS_REQUIRED, reason='needs chromium: apt-get install chromium'),
]


@pytest.fixture(scope='module')
def browser():
  from playwright.sync_api import sync_playwright

  with sync_playwright() as playwright:
    # Chromium has no sandbox for root.
    options = dict(executable_path=CHROMIUM, args=['--no-sandbox'], timeout=_PATIENCE)
    yield (launched := playwright.chromium.launch(**options))
    launched.close()


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  workdir = written(tmp_path_factory.mktemp('browser'))
  registry.EXPERIMENTS['prompt_vs_head'].show(settings(), workdir, QUIET)
  return workdir


@pytest.fixture
def opened(browser, folder, request):
  """The page, in a window of a size and a scheme of colours, and what it logged, asked for and popped up."""
  width, scheme = getattr(request, 'param', (1600, 'light'))
  context = browser.new_context(viewport={'width': width, 'height': 900}, color_scheme=scheme, offline=True)
  context.set_default_timeout(_PATIENCE)
  page, heard = context.new_page(), []
  for event in ('console', 'pageerror', 'dialog', 'request'):
    page.on(event, lambda said, event=event: heard.append((event, getattr(said, 'url', str(said)))))
  page.goto((folder / 'report.html').as_uri())
  yield page, heard
  context.close()


@pytest.mark.parametrize('opened', [(400, 'dark'), (1600, 'light')], indirect=True)
def test_a_page_opens_without_a_word(opened, folder):
  """It logs nothing, requests itself alone, and is no wider than the window; a record's markup is text."""
  page, heard = opened
  assert heard == [('request', (folder / 'report.html').as_uri())]
  assert page.evaluate('document.documentElement.scrollWidth <= innerWidth')
  assert page.get_by_text(NASTY).count() > len(prompt_records()) and page.locator('td script').count() == 0
  dark = page.evaluate('matchMedia("(prefers-color-scheme: dark)").matches')
  assert (page.evaluate('getComputedStyle(document.body).backgroundColor') != 'rgb(255, 255, 255)') == dark


def test_values_under_the_pointer_are_those_of_the_records(opened, folder):
  """The text beside the pointer is that of the point below it."""
  page, _ = opened
  rows = [json.loads(line) for line in (folder / 'results.jsonl').read_text().splitlines()]
  values = [row['accuracy'] for row in rows if (row['num_states'], row['model'], row['method']) == (30, 'bert', 'head')]
  points = page.locator('i[aria-label^="line: head, pretrained BERT\\anumber of hidden states |H|: 30"]')
  said = []
  for point in points.all():
    point.hover(force=True)
    text = page.evaluate('getComputedStyle(document.querySelector("i:hover"), "::after").content')
    said.append(float(text.replace('\\a ', '\n').rstrip('"').rpartition(': ')[2]))
  expected = [100 * value for value in [*values, np.mean(values)]]
  np.testing.assert_allclose(sorted(said), sorted(expected), rtol=1e-3)


def test_tables_are_sorted_by_pointer_and_keyboard(opened):
  """Numbers by value; the heading says in which direction."""
  page, _ = opened
  page.get_by_text('36 records', exact=False).first.click()
  table = page.locator('details', has_text='36 records').locator('table')
  button = table.get_by_role('button', name='num_states', exact=True)
  column = lambda: [int(text) for text in table.locator('tbody tr td:first-child').all_inner_texts()]
  button.click()
  assert column() == sorted(column()) and len(set(column())) == 3
  button.focus()
  page.keyboard.press('Enter')
  assert column() == sorted(column(), reverse=True)
  assert table.locator('th').first.get_attribute('aria-sort') == 'descending'


def test_a_thousand_trials_open_within_seconds(browser, tmp_path):
  """Three of CPU time, with as many records as are shown one by one."""
  rows = [row | dict(other=row['trial'] / 7) for row in prompt_records(num_trials=1000)][: content.MOST_RECORDS]
  report = content.Report('', '', '', [content.records_table(frame(rows))], [], {}, [], [])
  (tmp_path / 'report.html').write_text(content.page([report]))
  spent = lambda: sum(sum(one.cpu_times()[:2]) for one in psutil.Process().children(recursive=True))
  page, before = browser.new_page(), spent()
  page.goto((tmp_path / 'report.html').as_uri(), timeout=_PATIENCE)
  assert page.locator('tbody tr').count() == content.MOST_RECORDS
  assert spent() - before < 3
  page.close()
