"""The part `appendix` of the theory experiment: its records and its table."""

import dataclasses
import io

import jax
import pandas as pd
import pytest
import rich.console

from configs import theory
from experiments.runtime.progress import Reporter
from experiments.studies import registry
from experiments.studies.theory import appendix
from experiments.studies.theory.study import STUDY
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
  assert list(by_claim) == [claim for claims in appendix.CLAIMS.values() for claim in claims]
  for claim in ('Lemma C.9, the prompt', 'Lemma C.9, "precisely"', 'Claim C.10, i = 1', 'Theorem C.6 with -2'):
    assert by_claim[claim]['violated'] and by_claim[claim]['exact'] > 0
  for claim in ('Theorem 3.3', 'Lemma C.4', 'Lemma C.9, mended', 'Theorem C.6, mended', 'Theorem C.6, any start'):
    assert not by_claim[claim]['violated'] and by_claim[claim]['exact'] == 0
  for record in by_claim.values():
    assert record['edges'] == ', '.join(EDGES[record['assumed']])
    assert record['num_random'] == 40
  rows = STUDY.tables(pd.DataFrame(records), None)['claims'].frame
  verdicts = ['violated' if record['violated'] else 'not violated' for record in by_claim.values()]
  assert rows['claim'].tolist() == list(by_claim) and rows['verdict'].tolist() == verdicts


def test_gaps_shrink_with_the_denominator(records):
  """The search finds smaller gaps than random draws, and smaller ones still among larger denominators."""
  gaps = [record for record in records if 'gap_denominator' in record]
  assert [record['gap_denominator'] for record in gaps] == [8, 512]
  for record in gaps:
    assert 0 < record['gap_adversarial'] <= record['gap_random'] < 1
  assert gaps[1]['gap_adversarial'] < gaps[0]['gap_adversarial']
