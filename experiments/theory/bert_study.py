"""The theorems on a pretrained BERT: recovery along pretraining, and what a trained prompt does to the posterior."""

from collections.abc import Iterator
import functools
from typing import Any

import jax
import numpy as np

from experiments.progress import Reporter
from experiments.theory import imperfection
from experiments.theory import problems
from experiments.theory.imperfection import Case
from experiments.theory.imperfection import Row
from experiments.theory.problems import Problem
from experiments.theory.settings import TheorySettings
from hmm_jax import optimizer as optimizer_lib
from hmm_jax import pretrain
from hmm_jax import sharding
from hmm_jax.bert import Bert
from hmm_jax.bert import BertModel
from hmm_jax.sampling import sample_corpus
from hmm_jax.theory import recovery

Array = jax.Array


def run(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Row]:
  """Rows of `imperfection.evaluate` on BERT: every checkpoint for Theorem 3.3, the last one for Theorem 3.6.

  For 3.3 the theorem's head reads BERT's G. For 3.6 the mass on H* is followed while a prompt is trained; the theorem's
  own prompt is a row over hidden states, which BERT has no place for.
  """
  rows, model = [], BertModel(_bert(settings))
  for theorem, number in (('3.3', 33), ('3.6', 36)):
    cases = []
    for index in range(settings.bert.num_hmms):
      key_hmm = jax.random.fold_in(jax.random.fold_in(key, index), number)
      problem = problems.draw(settings, theorem, key_hmm)
      checkpoints = list(_pretrained(settings, problem, key_hmm, reporter))
      construction: recovery.Construction | None = problem.construction
      reader = np.zeros(settings.degradation.num_tokens)
      if theorem == '3.6':
        checkpoints, construction, reader = checkpoints[-1:], None, problems.mass_reader(settings, problem)
      for step, params in checkpoints:
        fields = {'theorem': theorem, 'hmm': index, 'study': 'bert', 'model': 'bert', 'level': step}
        cases.append(Case(problem, params, construction, fields, reader))
    rows += imperfection.evaluate(settings.degradation, model, cases, key, reporter)
  return rows


def _bert(settings: TheorySettings) -> Bert:
  return settings.bert.model.module(settings.degradation.num_tokens)


@functools.cache
def _compiled(settings: TheorySettings):
  b, bert, mesh = settings.bert, _bert(settings), sharding.data_mesh(1)
  optimizer = optimizer_lib.adamw(
    b.learning_rate, b.warmup_steps, b.checkpoints[-1], weight_decay=b.weight_decay, clip_norm=b.clip_norm
  )
  whole = sharding.replicated(mesh)
  init = jax.jit(lambda key: pretrain.init_train_state(key, bert, optimizer), out_shardings=whole)
  corruption = b.corruption(settings.degradation.num_tokens)
  sizes = dict(batch_size=b.batch_size, steps_per_call=b.steps_per_call)
  return init, pretrain.make_train_steps(bert, optimizer, corruption, mesh=mesh, **sizes)


def _pretrained(
  settings: TheorySettings, problem: Problem, key: Array, reporter: Reporter
) -> Iterator[tuple[int, Any]]:
  """(step, parameters) at each checkpoint of one pretraining on the problem's text."""
  b = settings.bert
  key_text, key_init, key_steps = jax.random.split(key, 3)
  init, train_steps = _compiled(settings)
  state = init(key_init)
  documents = sample_corpus(key_text, problems.float32(problem.hmm), b.num_documents, settings.degradation.length)
  corpus = jax.device_put(documents, state.step.sharding)
  with reporter.track('pretraining', b.checkpoints[-1]) as advance:
    for done in range(0, b.checkpoints[-1] + 1, b.steps_per_call):
      if done:
        state, losses = train_steps(state, corpus, key_steps)
        advance(done, f'loss {float(losses.mean()):.3f}')
      if done in b.checkpoints:
        yield done, jax.device_get(state.params)
