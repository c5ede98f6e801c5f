"""What is measured of prompts for one task."""

import json

from library.theory.limits import constant_prompt_test as dense_cases, no_prompt_test as proof_cases
import numpy as np
from theory_cases import drawn, EXACT

from experiments.studies.which_theorem import prompts
from experiments.studies.which_theorem.settings import PromptSettings
from hmm_jax.theory.limits.constant_prompt import likelihoods
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
  ones = {**built, 'prompt': np.ones((1, 7))}
  assert prompts.accuracy(problem.hmm, ones, inputs, labels) < 1


def test_a_task_on_which_no_prompt_is_right_is_proven_and_nothing_built():
  found, *_ = _measured(*proof_cases.problem(9))
  assert found['no_prompt'] == 'certified' and found['num_refuted'] == 14
  assert found['constant_prompt']['0.0'] == 'no' and found['accuracy']['0.0'] is None and found['error']['0.0'] is None
