"""report.html in a real browser, which has no network."""

import os
import shutil

from page_cases import NASTY, settings, written
from pandas import DataFrame as frame
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
    yield playwright.chromium.launch(executable_path=CHROMIUM, args=['--no-sandbox'], timeout=_PATIENCE)


@pytest.fixture(scope='module')
def address(tmp_path_factory):
  workdir = written(tmp_path_factory.mktemp('browser'))
  registry.EXPERIMENTS['prompt_vs_head'].show(settings(), workdir, QUIET)
  return (workdir / 'report.html').as_uri()


@pytest.mark.parametrize('width', [400, 1600])
def test_a_page_opens_without_a_word(browser, address, width):
  """It logs nothing, requests itself alone, and is no wider than the window; a record's markup is text."""
  page = browser.new_page(viewport={'width': width, 'height': 900}, offline=True)
  heard = []
  for event in ('console', 'pageerror', 'dialog', 'request'):
    page.on(event, lambda said: heard.append(said))
  page.goto(address, timeout=_PATIENCE)
  assert [said.url for said in heard] == [address]
  assert page.evaluate('document.documentElement.scrollWidth <= innerWidth')
  assert page.get_by_text(NASTY).count() == 1 and page.locator('td script').count() == 0
  assert page.evaluate('[...document.images].every(image => image.naturalWidth > 0)')


def test_tables_are_sorted_by_pointer_and_keyboard(browser):
  """Numbers by value, then words, then empty cells; the heading says in which direction."""
  shown = content.Table('', frame({'size': ['10', '', '4', 'none', '30']}))
  page = browser.new_page()
  page.set_content(content.page([content.Report('', '', '', [shown], {}, {}, [], [])]), timeout=_PATIENCE)
  button = page.get_by_role('button', name='size')
  button.click()
  assert page.locator('td').all_inner_texts() == ['4', '10', '30', 'none', '']
  button.focus()
  page.keyboard.press('Enter')
  assert page.locator('td').all_inner_texts() == ['none', '30', '10', '4', '']
  assert page.locator('th').get_attribute('aria-sort') == 'descending'
