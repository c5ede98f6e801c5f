"""Records of Figure 3 and what was drawn of them, which tests of figures and of tables share."""

from experiments.settings.grid import Point
from experiments.settings.groups import FigureSettings

RUN = dict(experiment='some_experiment', scale='small', seed=7)


def prompt_records(num_trials=1):
  return [
    dict(
      RUN,
      num_states=num_states,
      memory_size=0,
      num_cells=0,
      near_tie_share=0.0,
      trial=trial,
      task=task,
      model=model,
      method=method,
      accuracy=base + 0.02 * task + 0.01 * (trial % 3) - 0.005 * num_states,
      majority_accuracy=0.55,
      kl_at_mask=0.123,
      excess_mlm_loss=0.045,
    )
    for num_states in (4, 10, 30)
    for trial in range(num_trials)
    for task in range(3)
    for model, method, base in (
      ('bert', 'head', 0.8),
      ('bert', 'prompt', 0.9),
      ('exact', 'head', 0.82),
      ('exact', 'prompt', 0.95),
    )
  ]


def profile_of(offset):
  """Three bins of ten with positions in them; means of concentration and weight, and shares."""
  filled = {0: [0.05, 0.5 + offset, 0.5], 4: [0.45, 1.0 + offset, 0.25], 9: [0.98, 2.0 - offset, 0.25]}
  return [filled.get(index, [None, None, 0.0]) for index in range(10)]


def record_of(point, task, model, method, accuracy, majority, measure='entropy'):
  has_profile = method == 'attention'
  return dict(
    RUN | point._asdict(),
    trial=0,
    task=task,
    model=model,
    method=method,
    accuracy=accuracy,
    majority_accuracy=majority,
    near_tie_share=0.0,
    kl_at_mask=0.25 if point.memory_size else 0.5,
    excess_mlm_loss=0.045,
    attention_by=measure if has_profile else None,
    attention_profile=profile_of(0.1 * task) if has_profile else None,
  )


MEMORIES, VANILLAS = [Point(4, size, 1) for size in (2, 3, 5)], [Point(8), Point(12), Point(20)]


def memory_records():
  """Three sizes of memory and the HMMs beside them, but none beside the last on BERT."""
  vanilla = [
    record_of(point, task, model, 'head', 0.9 - 0.01 * point.num_states + 0.02 * task**2, 0.6)
    for point in VANILLAS
    for model in ('bert', 'exact')
    for task in range(3)
    if (point, model) != (VANILLAS[-1], 'bert')
  ]
  memory = [
    record_of(point, task, model, 'attention', 0.99 - 0.01 * point.memory_size - 0.01 * task, 0.55)
    for point in MEMORIES
    for model in ('bert', 'exact')
    for task in range(3)
  ]
  return vanilla + memory


def cell_records():
  return [
    record_of(Point(6, 3, cells), task, 'bert', method, base - 0.05 * cells + 0.01 * task, 0.5, measure)
    for cells, measure in ((1, 'entropy'), (2, 'read_probability'), (3, 'read_probability'))
    for method, base in (('attention', 0.9), ('head', 0.7), ('prompt_attention', 0.95))
    for task in range(3)
  ]


def figure_settings(overlay=False):
  return FigureSettings(width=6.4, height=4.2, dpi=60, paper_overlay=overlay)


def lines_by_label(axes):
  return {line.get_label(): line for line in axes.lines}
