"""An HMM that EM fits to text, as a model of your own: the control of `--config=labels:weak`.

    python -m experiments.main --config=labels:weak --config.models=own --config.model=docs.examples.em:build \\
      --config.methods=head_whitened,quadratic,masks_converged,probe_converged,probe_ridge,prompt_refit

Question: does a reader of BERT need fewer labels than a reader of an HMM fitted to text of the same process?

Plan, written down before the run. End points at temperature .15, each at |H| = 10 and 30: the lead of BERT's reader
over that of the fit at 20 and at 100 labels, and the labels that the fit needs for the accuracy of BERT's reader with
50; readers are chosen by validation, as in the study. Expected at 10: no lead above 0 and a ratio of at most 1, since
EM knows the family of the process and its number of states, and BERT does not. Nothing is expected at 30, where EM may
end in a local maximum. The fit reads a sixteenth of the text of BERT.

The end points, with BERT's records:

    from experiments.records import load
    from experiments.studies.labels import saved
    import pandas as pd

    bert, fit = load('docs/results/labels/weak'), load('docs/results/labels/em')
    both = pd.concat([bert[bert['model'] == 'bert'], fit.assign(model='none')], ignore_index=True)
    print(pd.DataFrame(saved(both)))
"""

import functools

import jax
import jax.numpy as jnp

import hmm_jax as hj
from hmm_jax.distributions.sampling import sample_chunks

DOCUMENTS, LENGTH, CHUNK = 128, 10240, 64
# Each start takes _SHORT steps on some chunks, the best of them _LONG on all.
_STARTS, _FEW, _SHORT, _LONG = 16, 1024, 50, 300
_FITTED: dict[bytes, hj.HMM] = {}


def loglik(hmm: hj.HMM, tokens: jax.Array) -> jax.Array:
  """log P of all texts [n, T], by a forward pass."""
  emitted = jax.nn.one_hot(tokens.T, hmm.num_tokens)

  def step(carry, emitted_nxV):
    predicted, total = carry
    joint = predicted * (emitted_nxV @ hmm.emission_matrix.T)
    evidence = joint.sum(-1)
    return (joint / evidence[:, None] @ hmm.transition_matrix, total + jnp.log(evidence).sum()), None

  start = jnp.broadcast_to(hmm.initial_probs, (len(tokens), hmm.num_states))
  return jax.lax.scan(step, (start, 0.0), emitted)[0][1]


@functools.partial(jax.jit, static_argnames='num_steps')
def em(hmm: hj.HMM, tokens: jax.Array, num_steps: int) -> tuple[hj.HMM, jax.Array]:
  """`num_steps` steps of EM, and the log-likelihood before the last.

  The expected number of uses of a probability is the probability times the slope of the log-likelihood there.
  """

  def step(_, carry):
    hmm, _ = carry
    value, slopes = jax.value_and_grad(loglik)(hmm, tokens)
    counts = jax.tree.map(lambda probs, slope: probs * slope + 1e-3, hmm, slopes)
    return jax.tree.map(lambda n: n / n.sum(-1, keepdims=True), counts), value

  return jax.lax.fori_loop(0, num_steps, step, (hmm, 0.0))


def fit(key: jax.Array, tokens: jax.Array, num_states: int, num_tokens: int) -> hj.HMM:
  """The HMM of EM from the best of several random starts."""
  rows = lambda key, *shape: jax.random.dirichlet(key, jnp.ones(shape[-1]), shape[:-1])
  best = None
  for start in jax.random.split(key, _STARTS):
    keys = jax.random.split(start, 3)
    drawn = hj.HMM(
      rows(keys[0], num_states), rows(keys[1], num_states, num_states), rows(keys[2], num_states, num_tokens)
    )
    hmm, value = em(drawn, tokens[:_FEW], _SHORT)
    if best is None or value > best[1]:
      best = hmm, value
  return em(best[0], tokens, _LONG)[0]


def build(distribution: hj.HMM, key: jax.Array) -> tuple[hj.ExactModel, hj.HMM]:
  """The exact model of the fit: trials with one key, which differ in their labels, share it."""
  name = jax.random.key_data(key).tobytes()
  if name not in _FITTED:
    key_text, key_fit = jax.random.split(key)
    tokens = sample_chunks(key_text, distribution, DOCUMENTS, LENGTH, CHUNK)
    _FITTED[name] = fit(key_fit, tokens, distribution.num_states, distribution.num_tokens)
    fresh = sample_chunks(jax.random.fold_in(key_text, 1), distribution, 8, LENGTH, CHUNK)
    for label, hmm in ('the fit', _FITTED[name]), ('the truth', distribution):
      print(f'|H| = {distribution.num_states}: log-likelihood of {label} on fresh text, nats a token:', end=' ')
      print(f'{loglik(jax.tree.map(jnp.asarray, hmm), fresh) / fresh.size:.4f}', flush=True)
  return hj.ExactModel(distribution.num_tokens), _FITTED[name]
