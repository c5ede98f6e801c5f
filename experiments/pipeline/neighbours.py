"""What the best function of the exact G reads: the label of the nearest of many texts, without any training."""

import jax
import numpy as np
from scipy.spatial import cKDTree

from experiments.pipeline import optimal_heads
from experiments.pipeline.job import Fitted, Job
from hmm_jax.distributions.hmm import Distribution
from hmm_jax.tuning import tasks as tasks_lib

# Smaller probabilities are as near as equal ones.
_LEAST = 1e-12


def nearest(job: Job) -> tuple[np.ndarray, np.ndarray]:
  """The text whose log G is nearest to that of each input, behind the posterior [n, S] that decides its label."""
  s, distribution = job.settings, job.frozen.distribution
  # What is folded into the key of one training text decides no other draw.
  key = jax.random.fold_in(job.trial.keys().downstream, 1)
  hidden = s.downstream.hidden_position
  num_texts = s.neighbours.num_texts
  length = s.downstream.length
  texts, _ = tasks_lib.draw_texts(key, distribution, num_texts, num_documents=0, length=length, hidden=hidden)
  texts = np.asarray(texts)
  seen = texts[:, : s.seen_length(job.method)]
  states = tasks_lib.hidden_state_probs(distribution, seen, hidden)
  _, places = cKDTree(_logs(distribution, states)).query(_logs(distribution, optimal_heads.states(job)))
  return job.downstream.label_probs(texts[places]), texts[places]


def _logs(distribution: Distribution, states: np.ndarray) -> np.ndarray:
  """The logarithms of the exact G [n, V] of posteriors [n, E]: the metric in which the least entries count too."""
  return np.log(np.maximum(optimal_heads.exact_probs(distribution, states), _LEAST))


def fits(job: Job, read: tuple[np.ndarray, np.ndarray]) -> list[Fitted]:
  """The labels of the nearest texts, for each task."""
  weights = [job.downstream.tasks[task].task_weights for task in job.tasks]
  answers = [tasks_lib.labelled(mu, *read).labels for mu in weights]
  return [Fitted({}, answer == labels, None, {}) for answer, labels in zip(answers, job.labels)]
