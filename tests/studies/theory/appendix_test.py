"""The part `appendix` of the theory experiment: its records, its tables, and that both say the same."""

import dataclasses
import io

import jax
import pytest
import rich.console

from configs import theory
from experiments.analysis.report import as_text
from experiments.runtime.progress import Reporter
from experiments.settings.fields import SettingsError
from experiments.studies import registry
from experiments.studies.theory import appendix, appendix_report
from hmm_jax.theory.claims.adversary import EDGES


def settings_of(**changes):
  settings = registry.from_config(theory.get_config('smoke'))
  return dataclasses.replace(settings, appendix=dataclasses.replace(settings.appendix, **changes))


@pytest.fixture(scope='module')
def records():
  reporter = Reporter(rich.console.Console(file=io.StringIO(), width=80))
  settings = settings_of(num_random=40, num_steps=30, gap_denominators=(8, 512))
  return appendix.run(settings, jax.random.key(0), reporter)


def test_every_claim_has_a_record(records):
  """What the proofs prove is not violated, C.9 and what it takes for granted are, and the mended lemma is not."""
  by_claim = {record['claim']: record for record in records if 'claim' in record}
  assert list(by_claim) == [statement.claim for statement in appendix.STATEMENTS]
  for claim in ('Lemma C.9, the prompt', 'Lemma C.9, "precisely"', 'Claim C.10, i = 1', 'Theorem C.6 with -2'):
    assert by_claim[claim]['violated'] and by_claim[claim]['exact'] > 0
  for claim in ('Theorem 3.3', 'Lemma C.4', 'Lemma C.9, mended', 'Theorem C.6, mended', 'Theorem C.6, any start'):
    assert not by_claim[claim]['violated'] and by_claim[claim]['exact'] == 0
  for record in by_claim.values():
    assert record['edges'] == ', '.join(EDGES[record['assumed']])
    assert record['num_random'] == 40


def test_gaps_shrink_with_the_denominator(records):
  """The search finds smaller gaps than random draws, and smaller ones still among larger denominators."""
  gaps = [record for record in records if 'gap_denominator' in record]
  assert [record['gap_denominator'] for record in gaps] == [8, 512]
  for record in gaps:
    assert 0 < record['gap_adversarial'] <= record['gap_random'] < 1
  assert gaps[1]['gap_adversarial'] < gaps[0]['gap_adversarial']


def test_tables_and_section_are_of_the_records(records):
  """Each claim has its row with its numbers in both, and sentences count what the records count."""
  claims = [record for record in records if 'claim' in record]
  printed, section = as_text(appendix_report.tables(records)[0].rich()), appendix_report.appendix_section(records)
  for record in claims:
    numbers = [f'{record[field]:.1e}' for field in ('largest_random', 'largest_adversarial')]
    for text in (printed, section):
      row = next(line for line in text.splitlines() if line.strip(' |').startswith(f'{record["claim"]} '))
      assert all(number in row for number in numbers) and ('not violated' in row) != record['violated']
  papers = [record for record in claims if record['printed']]
  violated = [record['claim'] for record in papers if record['violated']]
  assert f'Of {len(papers)} statements of the paper {len(violated)} were violated: {"; ".join(violated)}.' in section
  held = [record for record in claims if 'one-hot start' in record['edges'] and not record['violated']]
  still = [record for record in held if 'one-hot start' not in record['fails_at']]
  assert f'- one-hot start: {len(still)} of {len(held)}' in section
  gap = records[-1]
  assert f'{gap["gap_adversarial"]:.1e} for {gap["gap_denominator"]}.' in section


@pytest.mark.parametrize(
  ('field', 'value'), [('length', 5), ('denominator', 4), ('conditioning', 1.5), ('num_random', 0)]
)
def test_settings_that_are_refused(field, value):
  with pytest.raises(SettingsError, match=field):
    settings_of(**{field: value})
