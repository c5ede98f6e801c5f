"""How often the paper's assumptions hold in its own draws: what is decided, and how it is counted."""

import io

import jax
import numpy as np
import pandas as pd
import pytest
import rich.console

from configs import theory
from experiments.runtime.progress import Reporter
from experiments.studies import registry
from experiments.studies.theory import prevalence
from experiments.studies.theory.study import STUDY
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


def test_searches_that_were_cut_off_are_counted(records):
  """In the table of chains, beside how often each assumption holds."""
  changed = [{**row, 'exhaustive': {'0.0': False}} if row['text'] == 'chain' else row for row in records]
  for rows, count in ((records, '0'), (changed, '3')):
    found = STUDY.tables(pd.DataFrame(rows), SETTINGS)['chains'].frame.set_index('assumption')['H = 10']
    assert found['searches for H* cut off'] == count
    held = sum(row['3.5']['0.0']['1e-09'] for row in records if row['text'] == 'chain')
    assert found['3.5, epsilon 0, rank 1e-09'].startswith(f'{held}/3 ')
