"""report.html: what records and files hold is text in it, it asks for nothing, and it tells where all comes from."""

import re
import shlex

from page_cases import NASTY, settings, written
import pytest
from run_cases import QUIET

from experiments.analysis.page import content, origin
from experiments.analysis.tables import table
from experiments.records import results
from experiments.settings import config as config_lib
from experiments.studies import registry
from experiments.studies.registry import SETTINGS


def _shown(workdir):
  """The text of the report of a workdir."""
  registry.EXPERIMENTS['prompt_vs_head'].show(settings(), workdir, QUIET)
  return (workdir / 'report.html').read_text()


def test_a_report_asks_for_nothing_and_what_records_hold_is_text(tmp_path):
  """No address is loaded, and the browser is told to load none."""
  page = _shown(written(tmp_path / '<b>bold<'))
  assert "default-src 'none'" in page and '&lt;b&gt;bold&lt;' in page and '<b>' not in page
  assert not re.search(r'(src|href)="(?!data:)|url\(|@import', page)
  shown = table(NASTY, [{NASTY: NASTY}])
  report = content.Report(
    NASTY, NASTY, NASTY, NASTY, [shown, shown], {}, {NASTY: {NASTY: [{NASTY: [NASTY]}]}}, [shown], [NASTY]
  )
  for each in (page, content.page(report)):
    assert NASTY not in each and '&lt;script&gt;alert(1)' in each


@pytest.mark.parametrize('fields', [dict(seed=3, methods=('head',), prompt__length=2), dict(distribution='')], ids=str)
def test_the_command_is_read_back_as_the_same_settings(fields, tmp_path):
  made = settings(**fields)
  results.begin(tmp_path, [made])
  (config,) = results.configs(tmp_path)
  command = origin.command('prompt_vs_head', config, 'x')
  flags, texts = config_lib.parse(shlex.split(command)[2:], ['run'])
  assert registry.from_record(config_lib.load(flags.config, texts, SETTINGS)) == made
