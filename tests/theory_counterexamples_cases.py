"""The examples, their texts and exact probabilities, which tests of them and of their page share."""

from fractions import Fraction
import functools
import pathlib

import numpy as np
import rationals

from hmm_jax import theory
from hmm_jax.heads import AttentionHead
from hmm_jax.theory.problems import counterexamples

PAGE = (pathlib.Path(__file__).parent.parent / 'docs' / 'theory.md').read_text()
THRESHOLDS = theory.Thresholds(support=1e-12, rank=1e-9)
MAX_NODES = 1000
STATES = counterexamples.head_fails_prompt_succeeds()
MEMORY = counterexamples.head_fails_attention_succeeds()
CELL = 0


def small(array):
  """Floats as the fractions that they stand for."""
  fractions = [Fraction(value).limit_denominator(100) for value in np.asarray(array).reshape(-1).tolist()]
  return np.array(fractions, object).reshape(np.shape(array))


def texts_of(hmm, longest):
  """All x of positive probability, by length and then in order of tokens."""
  texts = [()]
  for _ in range(longest):
    texts = [(*text, token) for text in texts for token in range(hmm.num_tokens)]
    texts = [text for text in texts if masked_probs(hmm, text, 0).any()]
    yield from texts


def rows_of(hmm, text):
  """Likelihood rows of x' = (MASK, x)."""
  return rationals.likelihood_rows(hmm, (hmm.num_tokens, *text))


def masked_probs(hmm, text, position):
  """P[H_i | x'_{-i}] [E], exactly; positions of x' count from 0."""
  return rationals.state_probs(hmm, rows_of(hmm, text), position, leave_out=True)


def predicted(hmm, text):
  """G_1(x') [V], exactly."""
  return rationals.token_probs(hmm, rows_of(hmm, text), 0)


def state_label(text):
  """argmax of mu P[H_0 | x], and that it is no tie; H_0 is the state before the text."""
  probs = rationals.path_weights(small(STATES.silent_probs), *STATES.exact_hmm[1:], (None, *text), 0)
  scores = small(STATES.task_weights) @ probs
  assert scores[0] != scores[1]
  return int(scores[1] > scores[0])


def prompted(construction, text):
  """G_2(u, MASK, x) [V] of the constructed prompt, exactly."""
  prompt = list(small(construction['prompt']))
  return rationals.token_probs(STATES.exact_hmm, prompt + rows_of(STATES.exact_hmm, text), 1)


@functools.cache
def state_construction():
  return theory.theorem_3_6(STATES.hmm, STATES.task_weights, STATES.silent_probs, THRESHOLDS, MAX_NODES)


@functools.cache
def leave_one_out(text):
  """P[M = m, H_i = h | x'_{-i}] [M, H] at each position i of x', by `rationals`."""
  return [masked_probs(MEMORY.exact_hmm, text, i).reshape(2, 3) for i in range(len(text) + 1)]


def memory_probs(text):
  """P[M | x] [M]."""
  return leave_one_out(text)[0].sum(1)


def memory_label(text):
  """argmax of mu P[M | x], and that it is no tie."""
  scores = small(MEMORY.task_weights) @ memory_probs(text)
  assert scores[0] != scores[1]
  return int(scores[1] > scores[0])


def nouns_for_sure(text):
  """The positions of x' whose state is surely in H*, from 0; x' is in R (4.3) if there are any."""
  noun = MEMORY.states.index('noun')
  return [i for i, probs in enumerate(leave_one_out(text)) if probs.sum(0)[noun] == 1]


@functools.cache
def attention_head(length):
  """Of Theorem 4.3, for x' of this length."""
  return theory.theorem_4_3(MEMORY.hmm, MEMORY.task_weights, CELL, length, THRESHOLDS)['head']


def attention(text):
  """The largest key score, the positions that have it, and the score of class 0 over class 1, in fractions."""
  inputs = (MEMORY.hmm.num_tokens, *text)
  head = AttentionHead(*map(small, attention_head(len(inputs))))
  probs = [joint.reshape(-1) @ MEMORY.exact_hmm.emission_matrix for joint in leave_one_out(text)]
  keys = [head.query @ (head.key_weights @ g + beta) for g, beta in zip(probs, head.positions)]
  attended = [i for i, key in enumerate(keys) if key == max(keys)]
  values = [(head.value_weights @ probs[i] * head.token_embeddings[inputs[i]]) @ head.output for i in attended]
  mean = sum(values) / len(values)
  return max(keys), attended, mean[0] - mean[1]
