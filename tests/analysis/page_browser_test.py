"""report.html in a real browser, which has no network."""

import io
import os
import shutil

import matplotlib.image
import numpy as np
from page_cases import NASTY, settings, written
import pytest
from run_cases import QUIET

from experiments.settings.methods import METHODS
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
  """It logs nothing and requests itself alone; a record's markup is text.

  Page and figures are no wider than the window; the edge of a table that goes on is darker than that of one that does
  not.
  """
  page = browser.new_page(viewport={'width': width, 'height': 900}, offline=True)
  heard = []
  for event in ('console', 'pageerror', 'dialog', 'request'):
    page.on(event, lambda said: heard.append(said))
  page.goto(address, timeout=_PATIENCE)
  assert [said.url for said in heard] == [address]
  assert page.evaluate('document.documentElement.scrollWidth <= innerWidth')
  assert page.get_by_text(NASTY).count() == 1 and page.locator('td script').count() == 0
  is_seen = 'image.naturalWidth > 0 && image.getBoundingClientRect().right <= innerWidth'
  assert page.evaluate(f'[...document.images].every(image => {is_seen})')
  table = page.locator('.wide').first
  # Without text or lines the shadow is left.
  table.evaluate('element => element.style = "width: 120px; color: transparent; --line: transparent"')
  begun = _pixels(table)
  table.evaluate('element => element.scrollLeft = 1e6')
  assert begun[:, -1].mean() < _pixels(table)[:, -1].mean()


def test_in_the_dark_a_figure_has_the_contrast_of_text(browser, address):
  """At least 4.5 between the colour of a prompt and the background of its figure (WCAG 2.2, criterion 1.4.3)."""
  page = browser.new_page(viewport={'width': 1280, 'height': 900}, offline=True, color_scheme='dark')
  page.goto(address, timeout=_PATIENCE)
  both = ''.join(
    f'<rect x="{x}" width="50" height="50" fill="{colour}"/>'
    for x, colour in ((0, METHODS['prompt'].colour), (50, 'white'))
  )
  drawn = f'<svg xmlns="http://www.w3.org/2000/svg" width="100" height="50">{both}</svg>'
  page.evaluate('drawn => document.images[0].src = "data:image/svg+xml," + encodeURIComponent(drawn)', drawn)
  page.wait_for_function('document.images[0].naturalWidth == 100')
  seen = _pixels(page.locator('img').first)
  line, background = (_luminance(seen[25, at]) for at in (25, 75))
  assert (line + 0.05) / (background + 0.05) >= 4.5


def _pixels(element):
  """What is seen of an element, [height, width, 3] from 0 to 1."""
  return matplotlib.image.imread(io.BytesIO(element.screenshot()))[:, :, :3]


def _luminance(colour):
  """The relative luminance of a colour of sRGB (WCAG 2.2)."""
  linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
  return linear @ [0.2126, 0.7152, 0.0722]
