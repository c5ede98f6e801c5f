"""What the page says of linear heads: counts with intervals, and no difference that an interval does not show."""

import re

import pytest
import scipy.stats

from experiments.analysis import statistics
from experiments.studies.theory import impossibility_report, tables


def _record(hmm, outcome='certified', **accuracies):
  """Of one HMM; accuracies on a fresh text, a tenth less on an unseen one."""
  fresh = {name: accuracies.get(name) for name in ('program', 'converged', 'head', 'prompt', 'construction')}
  fresh |= {'construction_wrong': 0.0 if fresh['construction'] else None}
  fresh |= {'majority': None if outcome == 'constant' else 0.6, 'probability': 1.0}
  is_proof = outcome == 'certified'
  return {
    'part': 'impossibility',
    'kind': 'sparse',
    'hmm': hmm,
    'outcome': outcome,
    'texts': 10,
    'near_ties': 0.0,
    'proof_texts': 6 if is_proof else None,
    'least_error': 10.0**-hmm if is_proof else None,
    **{f'fresh_{name}': value for name, value in fresh.items()},
    **{f'unseen_{name}': value and value - 0.1 for name, value in fresh.items()},
  }


def _records(prompts):
  """Certified HMMs with these accuracies of the prompt, one of each other outcome."""
  methods = dict(program=0.95, converged=0.9, head=0.8)
  certified = [_record(1 + hmm, **methods, prompt=prompt) for hmm, prompt in enumerate(prompts)]
  methods['program'] = 1.0
  separable = _record(len(prompts), 'separable', **methods, prompt=0.7, construction=1.0)
  return [*certified, separable, _record(0, 'constant'), _record(0, 'undecided', **methods, prompt=0.9)]


def test_all_four_counts_have_their_interval():
  """As of Clopper and Pearson, by the quantiles of the beta law."""
  section = impossibility_report.impossibility_section(_records([0.85, 0.86, 0.87, 0.88]))
  low, high = scipy.stats.beta.ppf(0.025, 4, 4), scipy.stats.beta.ppf(0.975, 5, 3)
  assert f'4 of 7 ({100 * low:.1f} to {100 * high:.1f}%)' in section
  assert f'4/7 [{100 * low:.0f}, {100 * high:.0f}]' in section
  assert 'exists in 1, the label is constant in 1, and 1 stay undecided' in section and '4 of 6' in section
  assert statistics.share_interval(0, 5) == pytest.approx((0, 1 - 0.025 ** (1 / 5)))
  # Proofs of 0.1, ..., 1e-4.
  assert re.search(r'0.00[56] \(0.0001 to 0.1\) \(median, least and largest\) and above 0.001 in 2 of 4', section)


def test_a_difference_is_claimed_where_its_interval_leaves_out_zero():
  """The prompt beats the head in every HMM, or in two of four."""
  certain = impossibility_report.impossibility_section(_records([0.85, 0.86, 0.87, 0.88]))
  unsure = impossibility_report.impossibility_section(_records([0.7, 0.9, 0.72, 0.92]))
  said = 'the trained prompt minus the head trained by the same protocol: '
  assert re.search(re.escape(said) + r'6.5 ± 2.1 \(the interval leaves out 0\)', certain)
  assert re.search(re.escape(said) + r'1.0 ± \d+.\d \(no difference shown\)', unsure)
  assert 'the converged head has 90.0% and the head trained by the protocol 80.0%' in certain


def test_constructions_are_counted_where_theorem_3_6_applies():
  """One HMM of the six whose labels differ; none, where it applies to none."""
  records = _records([0.85, 0.86, 0.87])
  section = impossibility_report.impossibility_section(records)
  assert 'applies to 1 of 5 (sparse)' in section and 'wrong with probability 0 at most' in section
  imprecise = [{**record, 'fresh_construction': record['fresh_construction'] and 0.62} for record in records]
  assert 'accuracy is then 62.0% at least' in impossibility_report.impossibility_section(imprecise)
  without = [{**record, 'fresh_construction': None} for record in records]
  assert 'applies to none' in impossibility_report.impossibility_section(without)


def test_markdown_keeps_bars_in_their_cells():
  """A bar in a cell is escaped, so that every line has as many cells."""
  table = tables.Table('title', ['|H|', 'n'], [['a', '1'], ['b|c', '2']], 1)
  lines = table.markdown().splitlines()[2:]
  assert lines[0] == '| \\|H\\| | n |' and lines[1] == '| --- | ---: |'
  assert {len(re.findall(r'(?<!\\)\|', line)) for line in lines} == {3}
