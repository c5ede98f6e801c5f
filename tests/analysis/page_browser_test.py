"""report.html in a real browser, which has no network."""

import os
import shutil

from page_cases import NASTY, settings, written
import pytest
from run_cases import QUIET

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
