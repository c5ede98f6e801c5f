"""What is measured of prompts for one task, and the tables and sentences that records of it make."""

import json

from library.theory.limits import constant_prompt_test as dense_cases, no_prompt_test as proof_cases
import numpy as np
import pytest
from theory_cases import drawn, EXACT

from experiments.studies.which_theorem import prompts, prompts_report
from experiments.studies.which_theorem.settings import PromptSettings
from hmm_jax.theory.limits.constant_prompt import likelihoods, single_row
from hmm_jax.theory.theorems.recovery import theorem_3_6

SETTINGS = PromptSettings(
  support_levels=(0.0, 0.2), rank_level=1e-9, max_nodes=100, max_covers=50, max_boxes=50, max_states=8
)


def _measured(hmm, task_weights, texts):
  inputs = np.insert(texts, 0, hmm.num_tokens, axis=1)
  labels = (likelihoods(hmm, texts) @ (task_weights * hmm.initial_probs).T).argmax(1)
  return prompts.measured(hmm, task_weights, inputs, labels, SETTINGS), inputs, labels


def test_a_task_of_theorem_3_6_is_solved_and_its_prompt_is_right():
  problem = drawn('3.6', 'planted', 1)
  texts = dense_cases.all_texts(4, 3)
  one, other = np.flatnonzero(problem.task_weights.any(0))[:2]
  odds = likelihoods(problem.hmm, texts)[:, other] / likelihoods(problem.hmm, texts)[:, one]
  task_weights = np.zeros((2, 7))
  task_weights[0, [one, other]] = (
    np.quantile(odds, 0.45) * problem.hmm.initial_probs[other],
    -problem.hmm.initial_probs[one],
  )
  found, inputs, labels = _measured(problem.hmm, task_weights, texts)
  assert found['3.5']['0.0'] and found['constant_prompt']['0.0'] == 'yes' and found['no_prompt'] == 'open'
  assert found['accuracy']['0.0'] == 1 and found['error']['0.0'] < 1e-9 and json.loads(json.dumps(found)) == found
  built = theorem_3_6(problem.hmm, task_weights, problem.hmm.initial_probs, EXACT, 1000)
  assert prompts.accuracy(problem.hmm, built, inputs, labels) == 1
  ones = {**built, 'prompt': single_row(problem.hmm, np.ones((1, 7)))}
  assert prompts.accuracy(problem.hmm, ones, inputs, labels) < 1


def test_a_task_on_which_no_prompt_is_right_is_proven_and_nothing_built():
  found, *_ = _measured(*proof_cases.problem(9))
  assert found['no_prompt'] == 'certified' and found['num_refuted'] == 14
  assert found['constant_prompt']['0.0'] == 'no' and found['accuracy']['0.0'] is None and found['error']['0.0'] is None


def _record(num_states, trial, decision, **changes):
  built = decision == 'yes'
  fields = {
    '3.5': False,
    'constant_prompt': decision,
    'error': 1e-9 if built else None,
    'accuracy': 0.75 if built else None,
  }
  fields |= changes
  of_levels = {name: {'0.0': value, '0.001': value} for name, value in fields.items()}
  of_task = {'part': 'prompts', 'num_states': num_states, 'trial': trial, 'task': 0, 'majority_accuracy': 0.5}
  return {**of_task, **of_levels, 'no_prompt': 'open', 'num_refuted': 0}


def test_tables_and_sentences_count_what_the_records_have():
  """The unit is the HMM, what is not built has no accuracy, and an error above what is precise is told."""
  records = [_record(4, trial, 'yes', **{'3.5': trial > 0}) for trial in range(3)]
  records[2]['error']['0.001'] = 1e-3
  records += [_record(30, 0, 'no'), {**_record(30, 1, 'undecided'), 'no_prompt': 'certified'}, {'part': 'linearity'}]
  table = prompts_report.prompt_table(records)
  assert [row[:9] for row in table.rows] == [
    ['4', '3', '3', '0', '2', '3', '0', '0', '3'],
    ['4', '3', '3', '0.001', '2', '3', '0', '0', '2'],
    ['30', '2', '2', '0', '0', '0', '1', '1', '0'],
    ['30', '2', '2', '0.001', '0', '0', '1', '1', '0'],
  ]
  assert [row[9:] for row in table.rows] == [['75.0 ± 0.0', '50.0 ± 0.0']] * 2 + [['', '']] * 2
  assert prompts_report.proof_table(records).rows == [['4', '3', '0', '3', '0'], ['30', '2', '1', '1', '0']]
  told = prompts_report.section(records)
  assert 'as they are, the condition has a solution for 3 of 3 at |H| = 4, 0 of 2 at |H| = 30' in told
  assert 'fails in 1 of these tasks. 1 are undecided' in told and 'proven for 1 of 5 tasks. For 4' in told
  assert 'undecided' in prompts_report.render(records) and 'up to 0.001 taken for 0' in told


@pytest.mark.parametrize('records', [[], [{'part': 'kl'}]])
def test_no_records_are_a_line(records):
  assert prompts_report.section(records) == 'No records yet.' and prompts_report.render(records) == ''
