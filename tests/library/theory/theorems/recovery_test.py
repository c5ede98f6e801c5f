"""The constructions of the theorems against exact labels, on every text of a small length that can occur."""

import functools
import itertools

from conftest import contradictory_memory, contradictory_states, in_float64
import jax
import numpy as np
from oracles import attention_by_the_paper
import pytest
import rationals
from theory_cases import (
  EXACT,
  exact_posteriors,
  exactly,
  LIMITS,
  problem_of,
  region_by_definition,
  states_by_position,
)

from hmm_jax import tuning
from hmm_jax.heads import Attention, Linear
from hmm_jax.model import ExactModel
from hmm_jax.theory.theorems import assumptions, recovery, theorems
from hmm_jax.theory.theorems.assumptions import AssumptionError, Thresholds

pytestmark = pytest.mark.usefixtures('without_optimisation')

T = 3
TOLERANCE = 1e-9


def construct(theorem, problem, length=T):
  """The construction of the theorem that the name says."""
  return theorems.construct(theorem, problem, length, LIMITS)


def tuner_of(theorem, problem):
  """The tuner whose trainable the construction is, on the exact model; attention is the paper's argmax."""
  hmm, num_classes = problem.hmm, len(problem.task_weights)
  prompt = tuning.Prompt(1, 0.5) if theorem in ('3.6', '4.6') else None
  if theorem in ('3.3', '3.6'):
    return tuning.Tuner(ExactModel(hmm.num_tokens), Linear(num_classes), prompt)
  head = Attention(num_classes, hmm.num_states + 1, hmm.memory_size * hmm.num_states, temperature=0.0)
  return tuning.Tuner(ExactModel(hmm.num_tokens), head, prompt)


@functools.partial(jax.jit, static_argnums=(0, 1))
def scored(tuner, with_attention, trainable, frozen, inputs):
  """Scores [n, C] of one trainable, and its attention if asked."""
  trainable = jax.tree.map(lambda leaf: leaf[None], trainable)
  features = tuner.features(frozen, inputs)
  attended = tuner.attend(trainable, frozen, features)[0] if with_attention else None
  return tuner.scores(trainable, frozen, features)[0], attended


def texts_of(problem, length=T):
  """Every text of T tokens, [MASK] among them."""
  return np.array(list(itertools.product(range(problem.hmm.num_tokens + 1), repeat=length)))


def inputs_of(theorem, texts, num_tokens):
  """What the model reads: x' = (MASK, x) where the label is that of a silent state, and x itself else."""
  if theorem in ('3.3', '3.6'):
    return np.insert(texts, 0, num_tokens, axis=1)
  return texts


def assert_labels(scores, posteriors, task_weights):
  """The argmax of the scores is the exact label, ties by the first class included; returns how many tie.

  More: scores are a positive multiple of (mu - mu_C)^T P, and 0 where that is 0.
  """
  exact_weights = rationals.exact(task_weights)
  ties = 0
  for score, posterior in zip(scores, posteriors, strict=True):
    exact_scores = exact_weights @ posterior
    relative = (exact_scores - exact_scores[-1]).astype(float)
    size = np.abs(relative).max()
    if size == 0:
      np.testing.assert_allclose(score, 0, atol=1e-12)
      ties += 1
    else:
      np.testing.assert_allclose(score / np.abs(score).max(), relative / size, atol=1e-9)
    if size == 0 or np.sort(relative)[-1] - np.sort(relative)[-2] > 1e-9:
      assert score.argmax() == exact_scores.argmax()
  return ties


def possible(problem, texts):
  """The texts that can occur, and their exact posteriors."""
  posteriors = exact_posteriors(problem, texts)
  can_occur = [posterior.any() for posterior in posteriors]
  return texts[can_occur], posteriors[can_occur]


def balanced(problem, posteriors):
  """The problem with mu moved, on supp(mu) alone, so that every class has mean score 0: labels then differ."""
  states = assumptions.weighted_states(problem.task_weights)
  mean = posteriors.mean(0).astype(float)[states]
  task_weights = np.array(problem.task_weights)
  task_weights[:, states] -= np.outer(task_weights[:, states] @ mean, mean) / (mean @ mean)
  return problem._replace(task_weights=task_weights)


def exact_predictions(problem, inputs, positions, prompt=()):
  """G at these positions of the prompt and the inputs, from `rationals`, [n, len(positions), V]."""
  hmm = rationals.exact_hmm(exactly(problem).hmm)
  rows = [[*rationals.exact(prompt), *rationals.likelihood_rows(hmm, text)] for text in inputs.tolist()]
  probs = [[rationals.token_probs(hmm, row, position) for position in positions] for row in rows]
  return np.array(probs).astype(float)


def scores_on_exact_predictions(theorem, problem, texts):
  """Scores of the construction by the equations of its head, in float64; compiles nothing."""
  inputs = inputs_of(theorem, texts, problem.hmm.num_tokens)
  construction = construct(theorem, problem, texts.shape[1])
  prompt, head = construction.get('prompt', ()), construction['head']
  if theorem in ('3.3', '3.6'):
    return exact_predictions(problem, inputs, [len(prompt)], prompt)[:, 0] @ head.weights + head.bias
  probs = exact_predictions(problem, inputs, range(len(prompt) + texts.shape[1]), prompt)
  return np.array([attention_by_the_paper(head, *each, temperature=0.0)[1] for each in zip(probs, inputs, strict=True)])


def run(theorem, problem, texts, with_attention=False):
  """Scores of the construction on the texts, in float64, and its attention if asked."""
  inputs = inputs_of(theorem, texts, problem.hmm.num_tokens)
  score = functools.partial(scored, tuner_of(theorem, problem), with_attention)
  return in_float64(score, construct(theorem, problem, texts.shape[1]), problem.hmm, inputs)


# Theorem 3.6 with two classes: below, where prompt and text contradict each other.
@pytest.mark.parametrize(('theorem', 'num_classes'), [('3.3', 2), ('3.3', 3), ('3.6', 3)])
def test_linear_heads_give_the_label_of_the_silent_state(theorem, num_classes):
  """Theorems 3.3 and 3.6: for every x that can occur the head on G has the argmax of mu^T P[H_0 | x]."""
  for seed in range(2):
    problem = problem_of(theorem, seed, num_classes)
    texts, posteriors = possible(problem, texts_of(problem))
    problem = balanced(problem, posteriors)
    scores = scores_on_exact_predictions(theorem, problem, texts)
    assert_labels(scores, posteriors, problem.task_weights)
    assert len(set(scores.argmax(-1).tolist())) > 1


@pytest.mark.parametrize(
  ('theorem', 'num_classes', 'num_cells', 'seeds'),
  [('4.3', 2, 2, [0]), ('4.3', 3, 1, [0, 1]), ('4.6', 2, 2, [4]), ('4.6', 3, 1, [0, 1])],
)
def test_attention_heads_give_the_label_of_the_memory(theorem, num_classes, num_cells, seeds):
  """Theorems 4.3 and 4.6 (C.6): for every x in R the head on G has the argmax of mu^T P[M_j* | x]."""
  for seed in seeds:
    problem = problem_of(theorem, seed, num_classes, num_cells)
    assert set(problem.hmm.cell_index.tolist()) == set(range(num_cells))
    texts = texts_of(problem)
    # With two cells exact posteriors take long: there [MASK] is left out, and every other text.
    texts = texts if num_cells == 1 else texts[(texts < problem.hmm.num_tokens).all(-1)][::2]
    texts, posteriors = possible(problem, texts[region_by_definition(problem, finding_of(theorem, problem), texts)])
    problem = balanced(problem, posteriors)
    scores = scores_on_exact_predictions(theorem, problem, texts)
    assert_labels(scores, posteriors, problem.task_weights)
    assert len(texts) > 10 and len(set(scores.argmax(-1).tolist())) > 1


def finding_of(theorem, problem):
  """What the theorem's assumption on W finds."""
  return theorems.finding(theorems.ON_EMISSIONS[theorem], problem, LIMITS)


def test_a_prompt_recovers_what_a_head_alone_cannot_and_scores_0_where_it_contradicts():
  """Theorem 3.6 is right where 3.3 refuses, also on texts that rule supp(mu) out: there G_2 = 0 and all scores are 0,
  a tie, which is class 0."""
  problem = contradictory_states()
  with pytest.raises(AssumptionError, match='Assumption 3.1') as error:
    construct('3.3', problem)
  assert error.value.finding.witness['dependence'].shape == (4,)
  texts, posteriors = possible(problem, texts_of(problem))
  np.testing.assert_array_equal(construct('3.6', problem)['prompt'], [[0, 0, 0, 1]])
  scores, _ = run('3.6', problem, texts)
  ties = assert_labels(scores, posteriors, problem.task_weights)
  # Exactly where token 1 is first.
  assert ties == (texts[:, 0] == 1).sum() > 0
  np.testing.assert_array_equal(scores[texts[:, 0] == 1], 0)
  assert set(scores.argmax(-1).tolist()) == {0, 1}


def test_a_prompt_recovers_the_memory_where_4_2_fails_and_scores_0_where_it_contradicts():
  """Theorem 4.6 is right where 4.3 refuses, on every text in R, also where both tokens rule supp(mu) out: there all
  scores are 0. The prompt is attended to on no text, in R or not."""
  problem = contradictory_memory()
  with pytest.raises(AssumptionError, match='Assumption 4.2'):
    construct('4.3', problem, length=4)
  texts, posteriors = possible(problem, texts_of(problem, length=4))
  scores, attended = run('4.6', problem, texts, with_attention=True)
  np.testing.assert_array_equal(attended[:, 0], 0)
  in_region = region_by_definition(problem, finding_of('4.6', problem), texts)
  ties = assert_labels(scores[in_region], posteriors[in_region], problem.task_weights)
  ruled_out = in_region & (texts == 1).any(-1) & (texts == 2).any(-1)
  assert ties >= ruled_out.sum() > 0 and not in_region.all()
  np.testing.assert_allclose(scores[ruled_out], 0, atol=1e-15)
  assert set(scores.argmax(-1).tolist()) == {0, 1}


def test_the_recoverable_region_is_that_of_the_definition():
  """Of all texts, impossible ones included: those with a position whose exact posterior has its support in H*."""
  problem = contradictory_memory()
  finding = finding_of('4.6', problem)
  texts = texts_of(problem)
  hmm = rationals.exact_hmm(problem.hmm)
  probs = np.array([states_by_position(problem, hmm, text) for text in texts.tolist()], float)
  found = recovery.recoverable_positions(problem.hmm, probs, finding).any(-1)
  expected = region_by_definition(problem, finding, texts)
  np.testing.assert_array_equal(found, expected)
  assert expected.any() and not expected.all()


def test_the_region_takes_mass_up_to_epsilon_for_none():
  """A posterior that leaves H* by no more than the support threshold counts, one of zeros does not."""
  problem = contradictory_memory()
  finding = finding_of('4.6', problem)._replace(thresholds=Thresholds(0.125, 1e-9))
  assert finding.witness['recoverable_states'].tolist() == [0]
  probs = np.array([[[0.875, 0.125], [0, 1]], [[0.75, 0.25], [0.5, 0.5]], [[0, 0], [0, 0]]])
  np.testing.assert_array_equal(
    recovery.recoverable_positions(problem.hmm, probs, finding).any(-1), [True, False, False]
  )


# A construction is a trainable.


@pytest.mark.parametrize('theorem', ['3.3', '3.6', '4.3', '4.6'])
def test_a_construction_is_where_tuning_can_start(theorem):
  """It has the tree and shapes of what the tuner trains, and its prompt is in the unit cube."""
  problem = problem_of(theorem, 0)
  tuner, construction = tuner_of(theorem, problem), construct(theorem, problem)
  inputs = inputs_of(theorem, texts_of(problem), problem.hmm.num_tokens)

  def trained(frozen):
    return tuner.init(jax.random.key(0), frozen, tuner.features(frozen, inputs))

  shapes = jax.tree.map(lambda leaf: leaf.shape, jax.eval_shape(trained, problem.hmm))
  assert jax.tree.map(np.shape, construction) == shapes
  prompt = construction.get('prompt', np.zeros(1))
  assert prompt.min() >= 0 and prompt.max() <= 1


@pytest.mark.parametrize('seed', [0, 1])
def test_mass_weights_read_the_mass_on_h_star_off_the_prediction(seed):
  """a^T G is the exact P[H_1 in H* | x], on every text, where imitators of H* are marked."""
  problem = problem_of('3.6', seed)
  finding = assumptions.relaxed_non_degeneracy(problem.hmm, problem.task_weights, EXACT, 1000)
  essential = finding.witness['essential_states']
  weights = recovery.mass_weights(problem.hmm, essential, EXACT)
  hmm, seen = rationals.exact_hmm(problem.hmm), set()
  for text in itertools.product(range(hmm.num_tokens), repeat=2):
    rows = rationals.likelihood_rows(hmm, (hmm.num_tokens, *text))
    states = rationals.state_probs(hmm, rows, 0, leave_out=True)
    mass = float(states[essential].sum())
    np.testing.assert_allclose(weights @ np.float64(states @ hmm.emission_matrix), mass, atol=1e-12)
    seen.add(round(mass, 3))
  assert len(seen) > 3


def test_a_mass_that_predictions_do_not_tell_is_refused():
  """Two states that a third imitates exactly: posteriors with other mass on them predict the same."""
  emission_matrix = np.array([[0.8, 0.2], [0.2, 0.8], [0.5, 0.5]])
  hmm = problem_of('3.3', 0).hmm._replace(emission_matrix=emission_matrix)
  with pytest.raises(ValueError, match=r'states is \[0, 1\]'):
    recovery.mass_weights(hmm, [0, 1], EXACT)
  np.testing.assert_allclose(recovery.mass_weights(hmm, [0, 1, 2], EXACT), [1, 1])
