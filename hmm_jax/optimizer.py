"""The optimiser of pretraining and tuning: AdamW under linear warm-up and linear decay."""

import optax


def adamw(
  learning_rate: float, warmup_steps: int, num_steps: int, *, weight_decay: float, clip_norm: float
) -> optax.GradientTransformation:
  """AdamW with a global-norm clip; the rate rises from 0 over `warmup_steps`, then falls to 0 at `num_steps`."""
  schedule = optax.schedules.warmup_constant_schedule(0.0, learning_rate, warmup_steps)
  if num_steps > warmup_steps:
    decay = optax.schedules.linear_schedule(learning_rate, 0.0, num_steps - warmup_steps)
    schedule = optax.schedules.join_schedules([schedule, decay], [warmup_steps])
  return optax.chain(optax.clip_by_global_norm(clip_norm), optax.adamw(schedule, weight_decay=weight_decay))
