"""The end points of the plan past the paper, from records with known differences."""

import pandas as pd
import pytest

from experiments.studies import end_points


def records_of(*fits, sizes=(25,), trials=3, **fields):
  """Two tasks of each HMM; a fit is (model, method, accuracy), and each HMM and task shifts all accuracies alike."""
  return pd.DataFrame(
    dict(num_states=size, trial=trial, task=task, model=model, method=method, **fields)
    | {'accuracy': accuracy + (0.03 * trial - 0.05 * task if model != 'none' else 0), 'clear_accuracy': accuracy**2}
    for size in sizes
    for trial in range(trials)
    for task in (0, 1)
    for model, method, accuracy in fits
  )


def test_an_end_point_is_over_its_own_sizes():
  """A fit without the one that it is compared with gives none."""
  fits = ('bert', 'masks_converged', 0.9), ('bert', 'head_whitened', 0.7), ('exact', 'prompt', 0.7)
  records = pd.concat([records_of(*fits, sizes=(25, 30)), records_of(*fits[::-1], ('bert', 'masks', 0), sizes=(10,))])
  (row,) = end_points._compared(end_points._MASKS, records)
  assert (row['end point'], row['|H|'], row['n'], row['difference']) == ('1', '25, 30', '6', '20.0 ± 0.0')
  assert row['without near ties'] == '32.0 ± 0.0'


def test_a_lead_is_over_the_better_reader_of_tokens_at_each_temperature():
  readers = ('none', 'table', 0.8), ('none', 'tokens', 0.6)
  parts = [
    records_of(('exact', 'prompt', 0.9 - loss), *readers, **{'hmm.emission_temperature': temperature})
    for temperature, loss in ((0.01, 0.1), (0.3, 0.2))
  ]
  rows = end_points._of_temperatures(pd.concat(parts))
  assert [list(row.values())[:2] for row in rows] == [['25', '0.01'], ['25', '0.3']]
  assert all([*row] == ['|H|', 'hmm.emission_temperature', 'prompt, exact'] for row in rows)
  assert end_points._of_temperatures(records_of(('exact', 'prompt', 0.9))) == []
  # The shifts of a model have mean 0.005.
  assert [float(row['prompt, exact'].split()[0]) for row in rows] == pytest.approx([0.5, -9.5])


def test_end_points_of_causal_models_are_by_size_and_count_each_process():
  """A process of the user's own is an HMM of its own; total variations are in percent."""
  fits = [(model, method, 0.9) for model in ('exact', 'bert') for method in ('prompt', 'head_whitened')]
  moved = dict(tv_moved=0.3, tv_moved_by_text=0.1, tv_at_mask=0.02, tv_movable=0.25)
  parts = [records_of(*fits, sizes=(36,), trials=1, distribution=name, **moved) for name in 'abcd']
  rows = {row['end point']: row for row in end_points._of_causal(pd.concat(parts, ignore_index=True))}
  assert {point: (row.get('n'), row['difference']) for point, row in rows.items()} == {
    '9': ('4', '0.0 ± 0.0'),
    '2, 3': ('4', '25.0 ± 0.0'),
    '1': (None, '5'),
  }
  assert [row['end point'] for row in end_points._of_causal(records_of(*fits, sizes=(30,)))] == ['6']
  seeds = pd.concat([records_of(*fits, sizes=(30,), seed=seed) for seed in (50, 51)], ignore_index=True)
  assert [row['n'] for row in end_points._of_causal(seeds)] == ['6']
  of_sizes = end_points._of_causal(records_of(*fits, sizes=(10, 30), **moved))
  assert [row['|H|'] for row in of_sizes if row['end point'] in ('2, 3', '8')] == ['10', '30', '10, 30']
  rows = {row['end point']: row for row in end_points._of_causal(records_of(*fits, sizes=(30,), **moved))}
  assert {point: row['difference'] for point, row in rows.items()} == {
    '6': '0.0 ± 0.0',
    '2, 3': '25.0 ± 0.0',
    '7': '20.0 ± 0.0',
    '8': '6.0 ± 0.0',
    '1': '5',
  }
