"""Errors that the tests must notice: each is one wrong line of the library, and its own module's tests.

Run by hand: `python tests/mutants.py` runs all, `python tests/mutants.py tuning hmm` those of these modules. Each is
made in a copy of the tree. Exit code 1 if a mutant survives, or its old text is not in the file exactly once.
"""

import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Mutant(NamedTuple):
  """One wrong line.

  Attributes:
    name: what is wrong.
    module: the file of `hmm_jax` that has it.
    old: text that is in the file exactly once.
    new: what stands there instead.
    tests: arguments of pytest: a file of tests, or the tests of it that speak of this line.
  """

  name: str
  module: str
  old: str
  new: str
  tests: tuple[str, ...]


TUNING = 'tests/tuning_test.py'
MUTANTS = [
  Mutant(
    'the prompt behind the input',
    'model',
    'return joined([prompts[..., None, :, :], embeddings])',
    'return joined([embeddings, prompts[..., None, :, :]])',
    ('tests/model_test.py', '-k', 'rows_before'),
  ),
  Mutant(
    'a construction read where a trained prompt would end',
    'tuning',
    "0 if self.finetunes else trainable['prompt'].shape[-2]",
    '0 if self.finetunes else self.prompt.length',
    (TUNING, '-k', 'another_length'),
  ),
  Mutant(
    'the row after the mask is read',
    'heads',
    'return np.array([prompt_length])',
    'return np.array([prompt_length + 1])',
    ('tests/heads_test.py', '-k', 'reads_the_mask'),
  ),
  Mutant(
    'a probe of the predictions',
    'tuning',
    'output = representation if self.probes else token_probs',
    'output = token_probs',
    (TUNING, '-k', 'features_are'),
  ),
  Mutant(
    'prompts start outside of their space',
    'tuning',
    "return self.project({'prompt': prompt, 'head': head})",
    "return {'prompt': prompt, 'head': head}",
    (TUNING, '-k', 'nearest'),
  ),
  Mutant(
    'fine-tuning of the frozen tree',
    'tuning',
    'predict = lambda params: model.predict(params, model.embed(params, tokens), positions)',
    'predict = lambda params: model.predict(params, model.embed(frozen, tokens), positions)',
    (TUNING, '-k', 'finetuning'),
  ),
  Mutant(
    'labels of another task',
    'tuning',
    'scores, labels[:, batch])',
    'scores, labels[::-1, batch])',
    (TUNING, '-k', 'side_by_side or an_epoch_meets'),
  ),
  Mutant(
    'prompts are not projected',
    'tuning',
    'trainable = tuner.project(optax.apply_updates(state.trainable, updates))',
    'trainable = optax.apply_updates(state.trainable, updates)',
    (TUNING, '-k', 'stay_in_the_unit_cube'),
  ),
  Mutant(
    'the same order in every epoch',
    'tuning',
    'jax.random.permutation(jax.random.fold_in(key, state.step // steps), num_inputs)',
    'jax.random.permutation(key, num_inputs)',
    (TUNING, '-k', 'an_epoch_meets'),
  ),
  Mutant(
    'inputs in the order they came',
    'tuning',
    'jax.random.permutation(jax.random.fold_in(key, state.step // steps), num_inputs)',
    'jnp.arange(num_inputs)',
    (TUNING, '-k', 'an_epoch_meets'),
  ),
  Mutant(
    'the frozen tree is donated',
    'tuning',
    "donate_argnames='state'",
    "donate_argnames=('state', 'frozen')",
    (TUNING, '-k', 'frozen_tree'),
  ),
  Mutant(
    'one clip for all tasks',
    'tuning',
    'jax.vmap(optimizer_.update)(grads, state.opt_state, state.trainable)',
    """(lambda norm: jax.vmap(optimizer_.update)(
      jax.tree.map(lambda g: g / jnp.maximum(norm / schedule.clip_norm, 1), grads), state.opt_state, state.trainable
    ))(optax.global_norm(grads))""",
    (TUNING, '-k', 'side_by_side and head'),
  ),
  Mutant(
    "a task's start by its place",
    'tuning',
    'jax.vmap(jax.random.fold_in, (None, 0))(key, tasks)',
    'jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(len(tasks)))',
    (TUNING, '-k', 'draw_of_its_own'),
  ),
  Mutant(
    'blocks in the place of the first',
    'blocks',
    'lax.dynamic_update_slice_in_dim(x, part, start, 0)',
    'lax.dynamic_update_slice_in_dim(x, part, 0, 0)',
    (TUNING, '-k', 'predictions_are'),
  ),
  Mutant(
    'the first block is lost',
    'blocks',
    'blocks = range(-(-count // size))',
    'blocks = range(1, -(-count // size) + 1)',
    (TUNING, '-k', 'features_are'),
  ),
  Mutant(
    'sampling by the transposed chain',
    'sampling',
    'rows = hmm.joint_initial_probs[None], hmm.transition_matrix, hmm.joint_emission_matrix',
    'rows = hmm.joint_initial_probs[None], hmm.transition_matrix.T, hmm.joint_emission_matrix',
    ('tests/sampling_test.py', '-k', 'samples_follow'),
  ),
  Mutant(
    'emissions of the next state',
    'hmm',
    'rows = jnp.take(hmm.joint_emission_matrix.T, tokens, axis=0',
    'rows = jnp.take(jnp.roll(hmm.joint_emission_matrix, 1, 0).T, tokens, axis=0',
    ('tests/hmm_test.py', '-k', 'token_likelihoods'),
  ),
  Mutant(
    'temperatures multiply',
    'hmm',
    'jax.random.uniform(key, shape) / temperature',
    'jax.random.uniform(key, shape) * temperature',
    ('tests/hmm_test.py', '-k', 'temperature'),
  ),
  Mutant(
    'the memory is lost after the first token',
    'sampling',
    'joint_states = first - first_state + jnp.append(states, last)',
    'joint_states = jnp.append(first, jnp.append(states, last)[1:])',
    ('tests/memory_hmm_test.py', '-k', 'samples_follow'),
  ),
  Mutant(
    'chunks begin one chunk late',
    'hmm',
    'advance = lambda probs, _: (multiply(probs, stride), probs)',
    'advance = lambda probs, _: (multiply(probs, stride), multiply(probs, stride))',
    ('tests/memory_hmm_test.py', '-k', 'chunk_start'),
  ),
  Mutant(
    'states read the next cell',
    'memory_hmm',
    'jnp.asarray(configurations)[hmm.cell_index].T',
    'jnp.asarray(configurations)[(hmm.cell_index + 1) % hmm.num_cells].T',
    ('tests/memory_hmm_test.py', '-k', 'joint_emissions or lift'),
  ),
  Mutant(
    'the reverse lifting is a sum',
    'memory_hmm',
    'return _sum_by_value_read(hmm, rows) / hmm.memory_size ** (hmm.num_cells - 1)',
    'return _sum_by_value_read(hmm, rows)',
    ('tests/memory_hmm_test.py', '-k', 'lift'),
  ),
  Mutant(
    'cells in reverse',
    'memory_hmm',
    'cells = range(-hmm.num_cells, 0)',
    'cells = range(-hmm.num_cells, 0)[::-1]',
    ('tests/memory_hmm_test.py', '-k', 'independent_cells'),
  ),
  Mutant(
    'the flattened chain moves the memory',
    'memory_hmm',
    'jnp.kron(identity, hmm.transition_matrix)',
    'jnp.kron(hmm.transition_matrix, identity)',
    ('tests/memory_hmm_test.py', '-k', 'flattened_chain'),
  ),
  Mutant(
    'a joint law of the start is not divided by that of the memory',
    'memory_hmm',
    'joint / positive_or_one(total)',
    'joint',
    ('tests/memory_hmm_test.py', '-k', 'chunk_start or random_draw'),
  ),
  Mutant(
    'blocks that do not overlap',
    'blocks',
    'jnp.minimum(jnp.arange(0, count, size), count - size)',
    'jnp.arange(0, count - size + 1, size)',
    ('tests/inference_test.py', '-k', 'companions'),
  ),
  Mutant(
    'NaN taken for zero',
    'float64',
    'jnp.where(x == 0, -jnp.inf, jnp.log(jnp.where(x == 0, 1, x)))',
    'jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1)), -jnp.inf)',
    ('tests/inference_precision_test.py', '-k', 'not_a_number'),
  ),
  Mutant(
    'Viterbi without the start',
    'viterbi',
    'log_initial_CxH + log_rows_TxCxH[0]',
    '0 * log_initial_CxH + log_rows_TxCxH[0]',
    ('tests/viterbi_test.py',),
  ),
  Mutant(
    'the memory of the last state forgotten',
    'viterbi',
    'configuration * num_states + jnp.append(states, last)',
    'jnp.append(states, last)',
    ('tests/viterbi_test.py',),
  ),
  Mutant(
    'a forgotten normaliser',
    'messages',
    'return probs, tangent - probs * tangent.sum((-3, -2), keepdims=True)',
    'return probs, tangent',
    ('tests/inference_gradient_test.py', '-k', 'equals_enumeration'),
  ),
  *(
    Mutant(name, module, old, new, (f'tests/{module}_test.py', '-k', tests))
    for name, module, old, new, tests in (
      ('slots for what is not selected', 'pretrain', 'jnp.argsort(~selected', 'jnp.argsort(selected', 'slots'),
      ('a batch that overflows its slots', 'pretrain', '<= slots, in_slots', '<= slots + 9, in_slots', 'slots'),
      (
        'both branches computed for an ensemble',
        'pretrain',
        'functools.partial(lax.pmax, axis_name=_MEMBERS) if num_members else lambda x: x',
        'lambda x: x',
        'members',
      ),
      ('slots for one sequence alone', 'masking', '0.99 ** (1 / batch_size)', '0.99', 'slots'),
    )
  ),
  Mutant(
    'keys and values only where something is read',
    'bert',
    'key, value = heads(joined([project(part, slice(width, None)) for part in parts]), 2)',
    'key, value = heads(project(x_BxQxD, slice(width, None)), 2)',
    ('tests/model_test.py', '-k', 'what_is_read and bert'),
  ),
  Mutant(
    'a text whose places do not follow those of its prompt',
    'bert',
    'places = jnp.split(self.position_embedding[:length], np.cumsum([part.shape[-2] for part in parts])[:-1])',
    'places = [self.position_embedding[: part.shape[-2]] for part in parts]',
    ('tests/model_test.py', '-k', 'rows_before and bert'),
  ),
  *(
    Mutant(name, module, old, new, (f'tests/theory_{file}_test.py', '-k', tests))
    for name, module, old, new, file, tests in (
      (
        "the paper's beta",
        'theory/recovery',
        'positions[: len(prompt), -1] = -1 - theta_HxV[states].sum(0).max()',
        'positions[: len(prompt), -1] = -2',
        'mutants',
        'right_is_not or beta',
      ),
      (
        'keys on the span of the others',
        'theory/recovery',
        'off_others = np.eye(hmm.num_tokens) - others @ others.T',
        'off_others = np.eye(hmm.num_tokens)',
        'recovery',
        'label_of_the_memory',
      ),
      (
        'a prompt that forgets what comes before the text',
        'theory/recovery',
        'u = (_over_cell(hmm, in_support[:, :1], cell) * by_state)[None]',
        'u = (_over_cell(hmm, in_support[:, :1], cell) * (by_state > 0))[None]',
        'scoring',
        'what_is_read',
      ),
      (
        'r_x without the evidence',
        'theory/scoring',
        'factor = mean * _prompt_scale(problem, prompt) * _ratio(loglik, prompted_loglik)',
        'factor = mean * _prompt_scale(problem, prompt)',
        'scoring',
        'what_is_read',
      ),
      (
        'r_x without the scale of the prompt',
        'theory/scoring',
        'return max(scales, default=1.0)',
        'return 1.0',
        'scoring',
        'what_is_read',
      ),
      (
        'r_x of positions outside of H*',
        'theory/scoring',
        'mean = (seen * attended).sum(-1) / np.maximum(attended.sum(-1), 1)',
        'mean = seen.mean(-1)',
        'scoring',
        'what_is_read',
      ),
      (
        'the end of a text is a position',
        'theory/texts',
        'certain |= alone & (now < len(found.emits) - 1)',
        'certain |= alone',
        'texts',
        'end_of_a_text',
      ),
      (
        'the region forgets what comes after',
        'theory/texts',
        'state_possible = (arrival & after).any(1)',
        'state_possible = arrival.any(1)',
        'texts',
        'region_is',
      ),
      (
        'the region sees its own token',
        'theory/texts',
        'arrivals.append(before)\n    before = _moved(before & found.emits[now], found.moves)',
        'arrivals.append(before & found.emits[now])\n    before = _moved(before & found.emits[now], found.moves)',
        'texts',
        'region_is',
      ),
      (
        'a family that is not asked for its assumption',
        'theory/families',
        "if found.holds and found.closeness['smallest_singular_value'] >= conditioning:",
        'if found.holds:',
        'families',
        'conditioning',
      ),
      (
        'an added state that is never left to itself',
        'theory/padding',
        'transition_matrix[added, added] = 1',
        'transition_matrix[added, 0] = 0',
        'texts',
        'filled_up_chain_says',
      ),
    )
  ),
  Mutant(
    'ties broken by rounding',
    'heads',
    'is_largest = (logits >= largest - rounding).astype(logits.dtype)',
    'is_largest = (logits >= largest).astype(logits.dtype)',
    ('tests/heads_attention_test.py', '-k', 'but_for_rounding'),
  ),
  Mutant(
    'rounding that does not grow with the logits',
    'heads',
    'eps ** (2 / 3) * jnp.maximum(jnp.abs(largest), 1)',
    'eps ** (2 / 3)',
    ('tests/heads_attention_test.py', '-k', 'but_for_rounding'),
  ),
  *(
    Mutant(name, 'inference', old, new, (f'tests/inference{which}_test.py', '-k', tests))
    for name, old, new, which, tests in (
      (
        'the transition matrix transposed forward',
        'matrix = arithmetic.encode(transition_matrix.T)',
        'matrix = arithmetic.encode(transition_matrix)',
        '',
        'posterior_equals_enumeration',
      ),
      (
        'leave-one-out keeps its own row',
        'for message in (observed, future))',
        'for message in (observed, observed))',
        '',
        'leave_one_out_ignores',
      ),
      (
        'leave-one-out off by one',
        'arithmetic.contract(matrix, observed)), tuple(map(probs, joint))',
        'arithmetic.contract(matrix, future)), tuple(map(probs, joint))',
        '',
        'posterior_equals_enumeration',
      ),
      (
        'a beginning that ends one position early',
        'joint = arithmetic.times(predicted[-1], future)',
        'joint = arithmetic.times(predicted[-2], future)',
        '_between',
        'every_pair',
      ),
      (
        'pairs that are never left to logarithms',
        'return probs[None], log_evidence + arithmetic.log_total(joint)',
        'return probs[None], 0 * log_evidence',
        '_between',
        'logarithms_must_decide',
      ),
      (
        'evidence of the moved message left out',
        'log_scale + log_constant(updated) + log_constant(moved)',
        'log_scale + log_constant(updated)',
        '_precision',
        'float64_results',
      ),
      (
        'the largest entries of rows forgotten',
        ' + sum(jnp.log(x).sum(0) for x in largest)',
        '',
        '',
        'row_scale',
      ),
      ('logarithms too late', '_LEAST_LOG_EVIDENCE = -650', '_LEAST_LOG_EVIDENCE = -740', '_precision', 'detour'),
      ('no logarithms', '_LEAST_LOG_EVIDENCE = -650', '_LEAST_LOG_EVIDENCE = -1e9', '_precision', 'extreme'),
      (
        'one uncertified sequence replaces its whole batch',
        'jnp.where(certified, *x), scaled',
        'jnp.where(certified.all(), *x), scaled',
        '_gradient',
        'how_it_is_taken',
      ),
      (
        'arithmetic in float32',
        'run(arithmetic, arguments[-1].dtype, *scaled_arguments)',
        'run(arithmetic, arguments[-1].dtype, *(x.astype(jnp.float32) for x in scaled_arguments))',
        '_precision',
        'text_is_rounded',
      ),
      (
        'the scale of the matrix taken for evidence',
        'matrix / row_sum,',
        'matrix,',
        '_precision',
        'potentials',
      ),
    )
  ),
]


def verdict(mutant: Mutant) -> str:
  """'killed' where a test fails, 'SURVIVED' where all pass, else what is wrong with the mutant itself."""
  with tempfile.TemporaryDirectory() as folder:
    tree = pathlib.Path(folder) / 'tree'
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns('.git', '__pycache__', '.*_cache'))
    path = tree / 'hmm_jax' / f'{mutant.module}.py'
    text = path.read_text()
    if text.count(mutant.old) != 1:
      return f'NOT MADE: the old text is in {path.name} {text.count(mutant.old)} times'
    path.write_text(text.replace(mutant.old, mutant.new))
    settings = {'PYTHONPATH': str(tree), 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}
    command = [sys.executable, '-m', 'pytest', '-x', '-p', 'no:cacheprovider', *mutant.tests]
    done = subprocess.run(command, cwd=tree, env={**os.environ, **settings}, capture_output=True, text=True)
    # Pytest's 1 is a failed test; others are errors of its own, such as 5, no test.
    failed = [line for line in done.stdout.splitlines() if line.startswith(('FAILED', 'ERROR'))]
    if done.returncode == 1 and failed:
      return f'killed by {failed[0].split("::")[-1].split(" - ")[0]}'
    return 'SURVIVED' if done.returncode == 0 else f'NOT RUN: pytest ended with {done.returncode}'


def main(modules: list[str]) -> int:
  """Prints a line per mutant; the exit code."""
  unknown = set(modules) - {mutant.module for mutant in MUTANTS}
  if unknown:
    print(f'no mutants of {", ".join(sorted(unknown))}', file=sys.stderr)
    return 2
  failures, seconds = 0, 0.0
  for mutant in MUTANTS:
    if modules and mutant.module not in modules:
      continue
    answer = verdict(mutant)
    failures += not answer.startswith('killed')
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, before = used.ru_utime + used.ru_stime, seconds
    print(f'{mutant.module}: {mutant.name}: {answer} ({seconds - before:.0f} CPU s)', flush=True)
  return int(failures > 0)


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
