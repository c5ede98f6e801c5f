"""report.html: what records and files hold is text in it, it asks for nothing, and it tells where all comes from."""

import dataclasses
import json
import re
import shlex

from figures_cases import figure_settings, prompt_records
import numpy as np
from page_cases import NASTY, settings, written
from pandas import DataFrame as frame
import pytest
from run_cases import QUIET
from settings_cases import config_of

from experiments import main as main_lib
from experiments.analysis import figures
from experiments.analysis.page import content, origin, texts, training
from experiments.analysis.page.pictures import picture
from experiments.analysis.tables import table
from experiments.records import load, results, trials
from experiments.settings import config as config_lib
from experiments.studies import registry
from experiments.studies.registry import GRIDS, SETTINGS


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A workdir with a report."""
  workdir = written(tmp_path_factory.mktemp('folder') / '<b>bold<')
  registry.EXPERIMENTS['prompt_vs_head'].show(settings(), workdir, QUIET)
  return workdir


@pytest.fixture(scope='module')
def page(folder):
  return (folder / 'report.html').read_text()


def test_a_report_has_its_parts_in_order(page):
  """Question, table, figure, curves, tables, texts, command, settings, failure; in one small file."""
  headings = [r'<h1>Figure 3 \(left\)', 'Test accuracy in percent', 'Values of figure_3_left', 'Values of training']
  headings += [
    '<h3>Tables',
    '<h3>Texts',
    'near tie in task 1',
    'python -m experiments.main --config=prompt_vs_head:smoke',
  ]
  headings += ['Settings that differ', 'Failed trials']
  assert re.search('.*'.join(headings), page, re.DOTALL)
  assert page.count('<img') == 2 and len(page) < 1_500_000


def test_a_report_asks_for_nothing(page):
  """No address is loaded, and the browser is told to load none."""
  assert "default-src 'none'" in page
  assert not re.findall(r'(?:src|href|action)="(?!data:|#)[^"]*"|url\((?!#)[^)]*\)|@import', page)


def test_what_records_hold_is_text(page):
  """In tables, failures and the names of folders, as in titles and headings."""
  assert NASTY not in page and '<b>' not in page
  assert page.count('&lt;script&gt;alert(1)') > len(prompt_records()) and '&lt;b&gt;bold&lt;' in page
  shown, nasty = table(NASTY, [{NASTY: NASTY}]), texts.Text(NASTY, NASTY, [frame([[NASTY]], [NASTY])])
  report = content.Report(NASTY, NASTY, NASTY, [shown, shown], [], {NASTY: [nasty]}, [shown], [NASTY])
  assert NASTY not in content.page([report])


def test_of_more_records_there_are_means(monkeypatch):
  """Of each distribution, model and method."""
  records = frame(prompt_records(num_trials=2))
  assert len(content.records_table(records).frame) == len(records)
  monkeypatch.setattr(content, 'MOST_RECORDS', 20)
  means = content.records_table(records).frame.set_index(['num_states', 'model', 'method'])
  assert len(means) == 3 * 4
  assert means.loc[('4', 'bert', 'head'), 'accuracy'] == f'{0.8 + 0.02 + 0.005 - 0.02:.6g}'


@pytest.mark.parametrize('experiment', SETTINGS)
def test_shipped_settings_differ_from_no_default(experiment):
  """At each scale, as they come back from file."""
  shipped = config_lib.shipped(experiment)
  for scale in config_lib.scales(shipped):
    made = registry.from_config(config_lib.at_scale(shipped, scale))
    assert not origin.changed_settings(experiment, [json.loads(json.dumps(dataclasses.asdict(made)))])


def test_the_settings_are_a_difference_from_the_defaults(tmp_path):
  """The command line reads the command back as the same settings."""
  made = settings(seed=3, methods=('head',), prompt__length=2)
  results.begin(tmp_path, [made])
  changed = origin.changed_settings('prompt_vs_head', results.configs(tmp_path))
  of_tests = {'fast_compilation', 'pretrained'}
  assert changed.keys() - of_tests == {'seed', 'methods', 'prompt.length', 'num_states'}
  assert changed['seed'] == (['0'], ['3'])
  (command,) = origin.commands('prompt_vs_head', results.configs(tmp_path), 'runs/x', True)
  words = [word for word in shlex.split(command) if word.startswith('--config.')]
  config, _, _ = config_lib.override(config_of('smoke'), ['main', *words], SETTINGS, GRIDS)
  assert registry.from_config(config) == made


def test_a_grid_has_one_command_of_lists(tmp_path):
  """Settings that are no product have one for each."""
  grid = [settings(prompt__length=length, seed=seed) for length in (2, 3) for seed in (0, 1)]
  results.begin(tmp_path, grid)
  (command,) = origin.commands('prompt_vs_head', results.configs(tmp_path), 'x', True)
  assert '--config.prompt.length=2,3' in command and '--config.seed=0,1' in command
  results.begin(tmp_path / 'other', grid[1:])
  assert len(origin.commands('prompt_vs_head', results.configs(tmp_path / 'other'), 'x', True)) == 3


def test_names_with_a_comma_are_in_no_list(tmp_path):
  grid = [settings(distribution=f'{name}-0123456789ab') for name in ('p,q', 'mess3')]
  results.begin(tmp_path, grid)
  assert len(origin.commands('prompt_vs_head', results.configs(tmp_path), 'x', True)) == 2


def test_damaged_texts_and_metrics_are_left_out(tmp_path):
  """As are those of ids that lead elsewhere."""
  records = load(written(tmp_path))
  assert texts.of_records(records, tmp_path) and training.figures(records, settings(), tmp_path)
  # Without BERT its curves are another run's.
  assert not training.figures(records.assign(model='exact'), settings(), tmp_path)
  assert not texts.of_records(records.assign(trial_id='../trials/trial4'), tmp_path)
  (tmp_path / 'trials' / 'trial4' / trials.TEXTS).write_bytes(b'no archive')
  (tmp_path / 'pretrained' / 'model4' / 'metrics.jsonl').write_text('{}')
  assert not texts.of_records(records, tmp_path)
  assert not training.figures(records, settings(), tmp_path)


def test_folders_stand_side_by_side(tmp_path, capsys):
  """In the order of --workdir; a folder without records is refused in a sentence, and leaves no page."""
  first, second = (written(tmp_path / name) for name in 'ab')
  asked = ['main', '--config=prompt_vs_head:smoke', '--mode=report', '--config.figures=()', '--config.pretrained=none']
  assert main_lib.main([*asked, f'--workdir={first},{tmp_path / "empty"}']) == 2
  assert str(tmp_path / 'empty') in capsys.readouterr().err and not [*first.glob('*.html')]
  assert main_lib.main([*asked, f'--workdir={first},{second}']) == 0
  assert re.search(f'<h2>{first}</h2>.*<h2>{second}</h2>', (first / 'side_by_side.html').read_text(), re.DOTALL)


def test_values_of_a_figure_are_those_of_the_records(folder, page):
  """Each mean, and each task of the one HMM, by line and size."""
  labels = re.findall(r'aria-label="(line: head, pretrained BERT\nnumber of hidden states \|H\|: 4\n[^"]*)"', page)
  rows = [json.loads(line) for line in (folder / 'results.jsonl').read_text().splitlines()]
  values = [row['accuracy'] for row in rows if (row['num_states'], row['model'], row['method']) == (4, 'bert', 'head')]
  numbers = sorted(float(label.rpartition(': ')[2]) for label in labels)
  np.testing.assert_allclose(numbers, 100 * np.array(sorted([*values, np.mean(values)])), rtol=1e-3)


def test_values_stand_at_given_labels_with_their_intervals():
  """Also where a point is moved beside its tick, and where `$` was escaped."""
  figure, (axes,) = figures.panels(figure_settings())
  figures.draw_line(axes, {0: np.full(5, 40.0), 1: np.arange(5.0)}, r'a \$', {'color': 'k'}, beside=20)
  axes.set_xticks([0, 1], [r'\$x', 'y'])
  shown = picture('some', figure, figures.as_bytes(figure, 'svg'), b'')
  assert shown.values.frame.to_numpy().tolist() == [
    ['a $', '$x', '40', '[40, 40]'],
    ['a $', 'y', '2', '[0.03676, 3.963]'],
  ]
  (left, top), _ = shown.places
  at, height = axes.transData.transform((0, 40)), figure.bbox.height
  np.testing.assert_allclose(
    [left, top], [100 * (at[0] + 20 / 72 * figure.dpi) / figure.bbox.width, 100 - 100 * at[1] / height]
  )


def test_a_bar_without_an_interval_has_none():
  """As of two HMMs, which give no spread."""
  figure, (axes,) = figures.panels(figure_settings())
  axes.plot([0, 1], [2, 3], label='line')
  axes.errorbar([0, 1], [2, 3], [0.5, np.nan], fmt='none', label='_line')
  assert [*picture('some', figure, b'', b'').values.frame['95% interval']] == ['[1.5, 2.5]', '']


def test_values_of_bars_are_at_their_ends():
  """Sideways, too, and at names of places."""
  figure, (axes,) = figures.panels(figure_settings())
  axes.barh(['a', 'b'], [1, 2], label='share')
  values = picture('some', figure, b'', b'').values.frame
  assert values.to_numpy().tolist() == [['share', '1', 'a'], ['share', '2', 'b']]
