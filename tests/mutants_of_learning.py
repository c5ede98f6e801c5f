"""Errors of models, of pretraining and of tuning that the tests must notice."""

from mutant import Mutant

TUNING = 'tests/library/tuning_test.py'
LEARNING = [
  Mutant(
    'a second derivative of the wrong sign between classes',
    'hmm_jax/converged.py',
    '((c == d) - probs[:, d])',
    '((c == d) + probs[:, d])',
    ('tests/library/converged_test.py', '-k', 'optimum'),
  ),
  Mutant(
    'a gradient without the ridge',
    'hmm_jax/converged.py',
    '/ len(features) + ridge * weights',
    '/ len(features)',
    ('tests/library/converged_test.py', '-k', 'optimum'),
  ),
  Mutant(
    'whitening divides directions of rounding by their size',
    'hmm_jax/converged.py',
    'kept = sizes > _LEAST_DIRECTION * sizes[0]',
    'kept = sizes > 0',
    ('tests/library/converged_test.py', '-k', 'whitened'),
  ),
  Mutant(
    'the prompt behind the input',
    'hmm_jax/model.py',
    'return joined([prompts[..., None, :, :], embeddings])',
    'return joined([embeddings, prompts[..., None, :, :]])',
    ('tests/library/model_test.py', '-k', 'rows_before'),
  ),
  Mutant(
    'a construction read where a trained prompt would end',
    'hmm_jax/tuning.py',
    "0 if self.finetunes else trainable['prompt'].shape[-2]",
    '0 if self.finetunes else self.prompt.length',
    (TUNING, '-k', 'another_length'),
  ),
  Mutant(
    'the row after the mask is read',
    'hmm_jax/heads.py',
    'return np.array([prompt_length])',
    'return np.array([prompt_length + 1])',
    ('tests/library/heads_test.py', '-k', 'reads_the_mask'),
  ),
  Mutant(
    'a probe of the predictions',
    'hmm_jax/tuning.py',
    'output = representation if self.probes else token_probs',
    'output = token_probs',
    (TUNING, '-k', 'features_are'),
  ),
  Mutant(
    'prompts start outside of their space',
    'hmm_jax/tuning.py',
    "return self.project({'prompt': prompt, 'head': head})",
    "return {'prompt': prompt, 'head': head}",
    (TUNING, '-k', 'nearest'),
  ),
  Mutant(
    'fine-tuning of the frozen tree',
    'hmm_jax/tuning.py',
    'predict = lambda params: model.predict(params, model.embed(params, tokens), positions)',
    'predict = lambda params: model.predict(params, model.embed(frozen, tokens), positions)',
    (TUNING, '-k', 'finetuning'),
  ),
  Mutant(
    'labels of another task',
    'hmm_jax/tuning.py',
    'scores, labels[:, batch])',
    'scores, labels[::-1, batch])',
    (TUNING, '-k', 'side_by_side or an_epoch_meets'),
  ),
  Mutant(
    'prompts are not projected',
    'hmm_jax/tuning.py',
    'trainable = tuner.project(optax.apply_updates(state.trainable, updates))',
    'trainable = optax.apply_updates(state.trainable, updates)',
    (TUNING, '-k', 'stay_in_the_unit_cube'),
  ),
  Mutant(
    'the same order in every epoch',
    'hmm_jax/tuning.py',
    'jax.random.permutation(jax.random.fold_in(key, state.step // steps), num_inputs)',
    'jax.random.permutation(key, num_inputs)',
    (TUNING, '-k', 'an_epoch_meets'),
  ),
  Mutant(
    'inputs in the order they came',
    'hmm_jax/tuning.py',
    'jax.random.permutation(jax.random.fold_in(key, state.step // steps), num_inputs)',
    'jnp.arange(num_inputs)',
    (TUNING, '-k', 'an_epoch_meets'),
  ),
  Mutant(
    'the frozen tree is donated',
    'hmm_jax/tuning.py',
    "donate_argnames='state'",
    "donate_argnames=('state', 'frozen')",
    (TUNING, '-k', 'frozen_tree'),
  ),
  Mutant(
    'one clip for all tasks',
    'hmm_jax/tuning.py',
    'jax.vmap(optimizer_.update)(grads, state.opt_state, state.trainable)',
    """(lambda norm: jax.vmap(optimizer_.update)(
      jax.tree.map(lambda g: g / jnp.maximum(norm / schedule.clip_norm, 1), grads), state.opt_state, state.trainable
    ))(optax.global_norm(grads))""",
    (TUNING, '-k', 'side_by_side and head'),
  ),
  Mutant(
    "a task's start by its place",
    'hmm_jax/tuning.py',
    'jax.vmap(jax.random.fold_in, (None, 0))(key, tasks)',
    'jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(len(tasks)))',
    (TUNING, '-k', 'draw_of_its_own'),
  ),
  Mutant(
    'a model of its own sees no prompt',
    'hmm_jax/model.py',
    'return self.predict(params, prepend(prompts, self.embed(params, tokens)), positions)',
    'return self.predict(params, self.embed(params, tokens)[None], positions)',
    ('tests/library/workflow_test.py', '-k', 'falls_back'),
  ),
  Mutant(
    'labels of one task for all',
    'hmm_jax/tuning.py',
    'if labels.shape != valid:',
    'if labels.shape[-1:] != valid[1:]:',
    ('tests/library/arguments_test.py', '-k', 'refused'),
  ),
  *(
    Mutant(name, f'hmm_jax/{module}.py', old, new, (f'tests/library/{module}_test.py', '-k', tests))
    for name, module, old, new, tests in (
      (
        'accuracy on training texts',
        'workflow',
        'tuned.predict(inputs[task.num_train :]) == labels[task.num_train :]',
        'tuned.predict(inputs[: task.num_train]) == labels[: task.num_train]',
        'block_runs',
      ),
      ('negative ids are let through', 'arguments', '((ids < 0) | (ids >= num_ids))', '(ids >= num_ids)', 'refused'),
      ('slots for what is not selected', 'pretraining', 'jnp.argsort(~selected', 'jnp.argsort(selected', 'slots'),
      ('a batch that overflows its slots', 'pretraining', '<= slots, in_slots', '<= slots + 9, in_slots', 'slots'),
      ('slots for one sequence alone', 'masking', '0.99 ** (1 / batch_size)', '0.99', 'slots'),
    )
  ),
  Mutant(
    'keys and values only where something is read',
    'hmm_jax/bert.py',
    '[*project(x_BxQxD, 0, 1), *projected_parts(1)]',
    'project(x_BxQxD, 0, 3)',
    ('tests/library/model_test.py', '-k', 'what_is_read and bert'),
  ),
  Mutant(
    'a text whose places do not follow those of its prompt',
    'hmm_jax/bert.py',
    'places = jnp.split(self.position_embedding[:length], np.cumsum([part.shape[-2] for part in parts])[:-1])',
    'places = [self.position_embedding[: part.shape[-2]] for part in parts]',
    ('tests/library/model_test.py', '-k', 'rows_before and bert'),
  ),
  Mutant(
    'ties broken by rounding',
    'hmm_jax/heads.py',
    'is_largest = (logits >= largest - rounding).astype(logits.dtype)',
    'is_largest = (logits >= largest).astype(logits.dtype)',
    ('tests/library/heads_test.py', '-k', 'but_for_rounding'),
  ),
  Mutant(
    'rounding that does not grow with the logits',
    'hmm_jax/heads.py',
    'eps ** (2 / 3) * jnp.maximum(size, 1)',
    'eps ** (2 / 3)',
    ('tests/library/heads_test.py', '-k', 'but_for_rounding'),
  ),
]
