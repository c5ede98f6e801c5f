"""Records that differ in fields of settings: their rows, their differences, and the figure against a field."""

from figures_cases import figure_settings, lines_by_label, prompt_records
from pandas import DataFrame as frame
import pytest
import scipy.stats

from experiments.analysis import figures, report, statistics

LENGTHS = (20, 1, 5)


def _records(sizes=(4, 10, 30), **fields):
  """Those of `prompt_records` on one HMM at each value of one field or two, of which a prompt gains from one."""
  rows = [{}]
  for name, values in fields.items():
    rows = [{**row, name.replace('__', '.'): value} for row in rows for value in values]
  gain = lambda row, one: row.get('prompt.length', 0) * (0.002 + 0.0005 * one['task']) * (one['method'] == 'prompt')
  found = [
    {**one, **row, 'accuracy': one['accuracy'] - 0.2 + 0.01 * row.get('seed', 0) + gain(row, one)}
    for row in rows
    for one in prompt_records()
  ]
  return frame([row for row in found if row['num_states'] in sizes])


def _between(records):
  return report.between_values(statistics.by_place(statistics.with_unit(records)))


def test_tables_have_a_row_for_each_value_and_size():
  """In the order of the records; p-values are corrected over both."""
  records = _records((4, 10), prompt__length=LENGTHS)
  accuracy, differences, values = (
    report.tables(records, False)[name].frame for name in ('accuracy', 'differences', 'values')
  )
  places = [(str(length), size) for length in LENGTHS for size in ('4', '10')]
  assert [*zip(accuracy['prompt.length'], accuracy['|H|'])] == [*zip(differences['prompt.length'], differences['|H|'])]
  assert [*zip(accuracy['prompt.length'], accuracy['|H|'])] == places
  assert set(differences['comparisons']) == {'6'} and set(values['comparisons']) == {'4'}
  p_values = [one.p_value for one in next(iter(_between(records).values())).values()]
  assert [*map(float, values['p, Holm'][:4])] == pytest.approx(statistics.holm(p_values), rel=0.1)


def test_values_are_compared_paired_with_the_first():
  """What a field does not decide is not compared, nor are seeds, which share no HMM."""
  found = _between(_records(prompt__length=LENGTHS))
  assert set(found) == {f'prompt, {model}, minus prompt.length = 20' for model in ('BERT', 'exact G')}
  for differences in found.values():
    assert len(differences) == 2 * 3
    for place, one in differences.items():
      gains = [(dict(place.values)['prompt.length'] - 20) * (0.2 + 0.05 * task) for task in range(3)]
      assert one.values == pytest.approx(gains) and one.p_value == pytest.approx(
        scipy.stats.ttest_1samp(gains, 0).pvalue
      )
  seeds = _records(seed=(0, 1))
  assert _between(seeds) == {} and len(statistics.by_place(seeds)) == 2 * 3
  assert statistics.varied(_records(prompt__length=(5,))) == []


def _drawn(records):
  figure = figures.against_fields(records, figure_settings())
  return {axes.get_title(): axes for axes in figure.axes}


def test_the_figure_has_the_field_on_its_axis():
  """A logarithmic one from a factor of 20 on; a name has a place of its own."""
  (axes,) = _drawn(_records((10,), prompt__length=LENGTHS)).values()
  line = lines_by_label(axes)['prompt, pretrained BERT']
  assert list(line.get_xdata()) == [1, 5, 20] and axes.get_xscale() == 'log' and axes.get_xlabel() == 'prompt.length'
  assert line.get_ydata() == pytest.approx([67 + 0.25 * length for length in (1, 5, 20)])
  (axes,) = _drawn(_records((10,), prompt__length=(1, 19))).values()
  assert axes.get_xscale() == 'linear'
  (axes,) = _drawn(_records((10,), pretrain__optimizer=('muon', 'adamw'))).values()
  assert [tick.get_text() for tick in axes.get_xticklabels()] == ['muon', 'adamw']


def test_a_second_field_has_panels_and_so_have_the_fewer_of_sizes_and_methods():
  fields = dict(pretrain__optimizer=('adamw', 'muon'), prompt__length=LENGTHS)
  assert list(_drawn(_records((10,), **fields))) == ['pretrain.optimizer = adamw', 'pretrain.optimizer = muon']
  assert list(_drawn(_records(prompt__length=LENGTHS))) == ['|H|=4', '|H|=10', '|H|=30']
  records = _records(**fields)
  drawn = _drawn(records[(records['model'] == 'bert')])
  names = 'head, pretrained BERT', 'prompt, pretrained BERT'
  assert list(drawn) == [f'pretrain.optimizer = {name}, {line}' for name in ('adamw', 'muon') for line in names]
  for axes in drawn.values():
    assert {'|H|=4', '|H|=10', '|H|=30'} < set(lines_by_label(axes))
