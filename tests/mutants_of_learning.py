"""Errors of models, of pretraining and of tuning that the tests must notice."""

LEARNING = {
  'hmm_jax/converged.py': [
    (
      'a second derivative of the wrong sign between classes',
      '((c == d) - probs[:, d])',
      '((c == d) + probs[:, d])',
      'library/converged',
      'optimum',
    ),
    (
      'a gradient without the ridge',
      '/ len(features) + ridge * weights',
      '/ len(features)',
      'library/converged',
      'optimum',
    ),
    (
      'whitening divides directions of rounding by their size',
      'kept = sizes > _LEAST_DIRECTION * sizes[0]',
      'kept = sizes > 0',
      'library/converged',
      'whitened',
    ),
  ],
  'hmm_jax/model.py': [
    (
      'the prompt behind the input',
      'return joined([prompts[..., None, :, :], embeddings])',
      'return joined([embeddings, prompts[..., None, :, :]])',
      'library/model',
      'rows_before',
    ),
    (
      'a model of its own sees no prompt',
      'return self.predict(params, prepend(prompts, self.embed(params, tokens)), positions)',
      'return self.predict(params, self.embed(params, tokens)[None], positions)',
      'library/workflow',
      'falls_back',
    ),
  ],
  'hmm_jax/tuning.py': [
    (
      'a construction read where a trained prompt would end',
      "0 if self.finetunes else trainable['prompt'].shape[-2]",
      '0 if self.finetunes else self.prompt.length',
      'library/tuning',
      'another_length',
    ),
    (
      'a probe of the predictions',
      'output = representation if self.probes else token_probs',
      'output = token_probs',
      'library/tuning',
      'features_are',
    ),
    (
      'prompts start outside of their space',
      "return self.project({'prompt': prompt, 'head': head})",
      "return {'prompt': prompt, 'head': head}",
      'library/tuning',
      'nearest',
    ),
    (
      'fine-tuning of the frozen tree',
      'predict = lambda params: model.predict(params, model.embed(params, tokens), positions)',
      'predict = lambda params: model.predict(params, model.embed(frozen, tokens), positions)',
      'library/tuning',
      'finetuning',
    ),
    (
      'labels of another task',
      'scores, labels[:, batch])',
      'scores, labels[::-1, batch])',
      'library/tuning',
      'side_by_side or an_epoch_meets',
    ),
    (
      'prompts are not projected',
      'trainable = tuner.project(optax.apply_updates(state.trainable, updates))',
      'trainable = optax.apply_updates(state.trainable, updates)',
      'library/tuning',
      'stay_in_the_unit_cube',
    ),
    (
      'the same order in every epoch',
      'jax.random.permutation(jax.random.fold_in(key, state.step // steps), num_inputs)',
      'jax.random.permutation(key, num_inputs)',
      'library/tuning',
      'an_epoch_meets',
    ),
    (
      'inputs in the order they came',
      'jax.random.permutation(jax.random.fold_in(key, state.step // steps), num_inputs)',
      'jnp.arange(num_inputs)',
      'library/tuning',
      'an_epoch_meets',
    ),
    (
      'the frozen tree is donated',
      "donate_argnames='state'",
      "donate_argnames=('state', 'frozen')",
      'library/tuning',
      'frozen_tree',
    ),
    (
      'one clip for all tasks',
      'jax.vmap(optimizer_.update)(grads, state.opt_state, state.trainable)',
      """(lambda norm: jax.vmap(optimizer_.update)(
      jax.tree.map(lambda g: g / jnp.maximum(norm / schedule.clip_norm, 1), grads), state.opt_state, state.trainable
    ))(optax.global_norm(grads))""",
      'library/tuning',
      'side_by_side and head',
    ),
    (
      "a task's start by its place",
      'jax.vmap(jax.random.fold_in, (None, 0))(key, tasks)',
      'jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(len(tasks)))',
      'library/tuning',
      'draw_of_its_own',
    ),
    (
      'labels of one task for all',
      'if labels.shape != valid:',
      'if labels.shape[-1:] != valid[1:]:',
      'library/arguments',
      'refused',
    ),
  ],
  'hmm_jax/heads.py': [
    (
      'the row after the mask is read',
      'return np.array([prompt_length])',
      'return np.array([prompt_length + 1])',
      'library/heads',
      'reads_the_mask',
    ),
    (
      'ties broken by rounding',
      'is_largest = (logits >= largest - rounding).astype(logits.dtype)',
      'is_largest = (logits >= largest).astype(logits.dtype)',
      'library/heads',
      'but_for_rounding',
    ),
    (
      'rounding that does not grow with the logits',
      'eps ** (2 / 3) * jnp.maximum(size, 1)',
      'eps ** (2 / 3)',
      'library/heads',
      'but_for_rounding',
    ),
  ],
  'hmm_jax/workflow.py': [
    (
      'accuracy on training texts',
      'tuned.predict(inputs[task.num_train :]) == labels[task.num_train :]',
      'tuned.predict(inputs[: task.num_train]) == labels[: task.num_train]',
      'library/workflow',
      'block_runs',
    ),
  ],
  'hmm_jax/arguments.py': [
    (
      'negative ids are let through',
      '((ids < 0) | (ids >= num_ids))',
      '(ids >= num_ids)',
      'library/arguments',
      'refused',
    ),
  ],
  'hmm_jax/pretraining.py': [
    ('slots for what is not selected', 'jnp.argsort(~selected', 'jnp.argsort(selected', 'library/pretraining', 'slots'),
    (
      'a batch that overflows its slots',
      '<= slots, in_slots',
      '<= slots + 9, in_slots',
      'library/pretraining',
      'slots',
    ),
  ],
  'hmm_jax/masking.py': [
    ('slots for one sequence alone', '0.99 ** (1 / batch_size)', '0.99', 'library/masking', 'slots'),
  ],
  'hmm_jax/bert.py': [
    (
      'keys and values only where something is read',
      '[*project(x_BxQxD, 0, 1), *projected_parts(1)]',
      'project(x_BxQxD, 0, 3)',
      'library/model',
      'what_is_read and bert',
    ),
    (
      'a text whose places do not follow those of its prompt',
      'places = jnp.split(self.position_embedding[:length], np.cumsum([part.shape[-2] for part in parts])[:-1])',
      'places = [self.position_embedding[: part.shape[-2]] for part in parts]',
      'library/model',
      'rows_before and bert',
    ),
  ],
}
