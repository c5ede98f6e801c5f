"""Random HMMs with more states than tokens: is any linear head right on all texts of one length?

Two kinds of draw, a fixed number of each. `sparse`: exact zeros. `paper`: the paper's draw of a chain and of mu at the
sizes of the settings. Its transition matrix mixes few permutations, so that much of it is exactly 0; its first law is
dense, and so are its emissions but for those that float32 rounds to 0.
"""

import jax
from jax import Array
import numpy as np

from experiments.records.results import Record
from experiments.runtime.progress import Reporter
from experiments.studies.theory import prevalence
from experiments.studies.theory.settings import ImpossibilitySettings, TheorySettings
from hmm_jax.distributions.hmm import HMM
from hmm_jax.theory import certificates
from hmm_jax.theory.problem import generator, sparse_probs, StateProblem


def run(settings: TheorySettings, key: Array, reporter: Reporter) -> list[Record]:
  """A record for each HMM: a right linear head, a proof that there is none, or neither, on texts but near ties."""
  s, records = settings.impossibility, []
  # The third key trained heads until 51a35ca; the draws are those of then.
  key_sparse, key_paper, _ = jax.random.split(key, 3)
  for kind, key_kind in ('sparse', key_sparse), ('paper', key_paper):
    for number, key_hmm in enumerate(jax.random.split(key_kind, s.num_hmms)):
      decision = certificates.decide(_problem(s, kind, key_hmm), s.length, settings.margin)
      proof = decision.proof
      records.append(
        {
          'kind': kind,
          'hmm': number,
          'outcome': decision.outcome,
          'near_ties': decision.near_ties,
          'proof_texts': len(np.unique(proof.pairs[:, 0])) if proof else None,
          'least_error': decision.least_error,
        }
      )
  return records


def _problem(s: ImpossibilitySettings, kind: str, key: Array) -> StateProblem:
  """A draw of a kind; its task is on the masked first state itself. That of a sparse one weighs two states."""
  if kind == 'paper':
    hmm, task_weights = jax.tree.map(np.float64, prevalence.draw(s, 'chain', s.num_states, key))
    return StateProblem(hmm, hmm.initial_probs, task_weights)
  rng = generator(key)
  initial_probs = rng.dirichlet(np.ones(s.num_states))
  transition_matrix = sparse_probs(rng, s.num_states, s.num_states)
  hmm = HMM(initial_probs, transition_matrix, sparse_probs(rng, s.num_states, s.num_tokens))
  task_weights = np.zeros((2, s.num_states))
  task_weights[0, rng.choice(s.num_states, 2, replace=False)] = rng.standard_normal(2)
  return StateProblem(hmm, initial_probs, task_weights)
