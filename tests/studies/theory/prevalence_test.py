"""How often the paper's assumptions hold in its own draws: what is decided, and what the page says of it."""

import io

import jax
import numpy as np
import pytest
import rich.console

from configs import theory
from experiments.runtime.progress import Reporter
from experiments.studies import registry
from experiments.studies.theory import prevalence, prevalence_report
from hmm_jax.hmm import HMM

SETTINGS = registry.from_config(theory.get_config('smoke'))


@pytest.fixture(scope='module')
def records():
  """Of the smallest run: three draws at H = 10, three at M = 2."""
  rows = prevalence.run(SETTINGS, jax.random.key(0), Reporter(rich.console.Console(file=io.StringIO())))
  return [{'part': 'prevalence', **row} for row in rows]


def _of_chain(hmm, task_weights):
  return prevalence.chain_row(SETTINGS.prevalence, hmm, np.asarray(task_weights, float))


def test_every_size_has_its_draws(records):
  """A row a draw, in order, JSON alone; and a mixture of ten permutations has zeros and is doubly stochastic."""
  s = SETTINGS.prevalence
  expected = [('chain', size, draw) for size in s.num_states for draw in range(s.num_draws)]
  expected += [('memory', size, draw) for size in s.memory_sizes for draw in range(s.num_draws)]
  assert [(row['text'], row['size'], row['draw']) for row in records] == expected
  for row in records[: s.num_draws]:
    # (1 - 1/H)^H is the share of zeros to be expected.
    assert row['zeros'] == pytest.approx(0.9**10, abs=0.15)


def test_thresholds_order_what_holds(records):
  """With more singular values counted as 0, Assumptions 3.1 and 3.5 hold no more often."""
  for row in records[: SETTINGS.prevalence.num_draws]:
    for by_rank in (row['3.1'], *row['3.5'].values()):
      assert list(by_rank.values()) == sorted(by_rank.values(), reverse=True)


def test_a_chain_is_decided_by_its_supports_and_its_columns():
  """A cycle over one-hot states satisfies 3.1 and 3.5 and is periodic; two states alike fail both if mu weighs them."""
  cycle, mu = np.roll(np.eye(3), 1, axis=1), [[1, -1, 0], [0, 0, 0]]
  good = _of_chain(HMM(np.ones(3) / 3, cycle, np.eye(3)), mu)
  assert not good['3.2'] and all(good['3.1'].values()) and all(all(held.values()) for held in good['3.5'].values())
  assert good['zeros'] == pytest.approx(2 / 3) and good['smallest_singular_value'] == pytest.approx(1)
  alike = _of_chain(HMM(np.ones(3) / 3, cycle, np.eye(3)[[0, 0, 2]]), mu)
  assert not any(alike['3.1'].values()) and not any(any(held.values()) for held in alike['3.5'].values())


def test_small_probabilities_are_zero_from_their_epsilon_on():
  """A leak of 0.005 out of H* makes the cover dependent at epsilons below it, and none above."""
  transition_matrix = np.array([[0, 0, 1], [1, 0, 0], [0, 0.995, 0.005]])
  hmm = HMM(np.ones(3) / 3, transition_matrix, np.array([[1.0, 0], [0, 1], [0, 1]]))
  found = _of_chain(hmm, [[1, -1, 0], [0, 0, 0]])['3.5']
  holds = {float(support): all(by_rank.values()) for support, by_rank in found.items()}
  assert holds == {0.0: False, 1e-3: False, 1e-2: True, 1e-1: True}


def test_the_section_says_what_the_records_count(records):
  """Counts with the total, intervals, and no column that Markdown would break."""
  section = prevalence_report.prevalence_section(records)
  chains = [row for row in records if row['text'] == 'chain']
  held = sum(row['3.5']['0.0']['1e-09'] for row in chains)
  assert f'{held} of 3 (' in section and '3.5, epsilon 0, rank 1e-09' in section
  tables = [line for line in section.splitlines() if line.startswith('|')]
  assert {line.count('|') for line in tables} == {3, 8}
  changed = [{**row, 'exhaustive': {'0.0': False}} if row in chains else row for row in records]
  assert '3 of 3; a failure among them may be wrong' in prevalence_report.prevalence_section(changed)
