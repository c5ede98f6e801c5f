"""Records of Figure 3 and what was drawn of them, which tests of figures and of tables share."""

from experiments.settings.grid import Point
from experiments.settings.groups import FigureSettings


def record(point, model, method, accuracy, *, trial=0, task=0, **more):
  """The record of one task, with the usual values of what `more` does not name."""
  return dict(
    experiment='some_experiment',
    scale='small',
    seed=7,
    **point._asdict(),
    trial=trial,
    task=task,
    model=model,
    method=method,
    accuracy=accuracy,
    validation_accuracy=accuracy,
    majority_accuracy=0.55 if point.memory_size else 0.6,
    near_tie_share=0.0,
    kl_at_mask=0.123,
    excess_mlm_loss=0.045,
  ) | dict(dict(attention_by=None, attention_profile=None, accuracy_at_most=None), **more)


def prompt_records(num_trials=1):
  return [
    record(Point(size), model, method, base + 0.02 * task + 0.01 * (trial % 3) - 0.005 * size, trial=trial, task=task)
    for size in (4, 10, 30)
    for trial in range(num_trials)
    for task in range(3)
    for model, method, base in (
      ('bert', 'head', 0.8),
      ('bert', 'prompt', 0.9),
      ('exact', 'head', 0.82),
      ('exact', 'prompt', 0.95),
    )
  ]


def figure_settings():
  return FigureSettings(width=6.4, height=4.2, dpi=60, paper_overlay=False)


def lines_by_label(axes):
  return {line.get_label(): line for line in axes.lines}
