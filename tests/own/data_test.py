"""A user's own process and corpus: what follows from them, what names them, and how their files are refused."""

import dataclasses

from bert_cases import random_params, SMALLEST
from conftest import assert_same_bits, DOCS, joint_hmm, path_probs, state_paths
import jax
import numpy as np
import pandas as pd
import pytest
from run_cases import QUIET
from settings_cases import config_of, settings_of

from experiments.analysis.page import content
from experiments.own import code, data
from experiments.pipeline import checks, pretraining, sweep, trial as trial_lib
from experiments.records import results
from experiments.runtime import storage
from experiments.settings.fields import flat, SettingsError
from experiments.settings.grid import Point
from experiments.settings.trial import Trial
from experiments.studies import grids, registry
import hmm_jax as hj
from hmm_jax.distributions import processes
from hmm_jax.distributions.files import save_distribution
from hmm_jax.distributions.memory_hmm import MemoryHMM

pytestmark = pytest.mark.usefixtures('without_optimisation')

# Two cells; only state 2 reads the second, and no text begins in it.
MEMORY = MemoryHMM(
  memory_probs=np.full((2, 2), 0.25),
  initial_probs=np.array([0.5, 0.5, 0]),
  transition_matrix=np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]]),
  cell_index=np.array([0, 0, 1]),
  # No float32 numbers.
  emission_matrix=np.array([[[0.7, 0.3]] * 3, [[0.3, 0.7]] * 3]),
)


def _read(**changes):
  """The settings of a config with these fields, and what the files that they name have."""
  values = flat(config_of('smoke', **changes).to_dict())
  own = data.resolve(values, ())
  return registry.from_record(values), own


def _resolved(**changes):
  """The settings alone."""
  settings, _ = _read(**changes)
  return settings


def _written(path, content):
  """The path, as a word of a command line, of a file of tokens or of a distribution."""
  if isinstance(content, str):
    path.write_text(content)
  elif isinstance(content, np.ndarray):
    np.save(path, content)
  else:
    save_distribution(path, content)
  return str(path)


def test_ids_depend_only_on_the_arrays(tmp_path):
  """Another name or format changes none, another entry and a corpus do; what draws HMMs has no part in them."""
  changes = (
    dict(distribution=_written(tmp_path / 'a.json', processes.mess3())),
    dict(distribution='mess3', hmm__emission_temperature=1.0),
    dict(distribution=_written(tmp_path / 'b.npz', processes.mess3(alpha=0.5))),
    dict(distribution='mess3', corpus_file=_written(tmp_path / 'tokens.npy', np.zeros((8, 512), int))),
  )
  file, name, *_ = ids = [Trial(_resolved(**each), Point(3), 0).pretraining_id for each in changes]
  assert file == name and len(set(ids)) == 3


def test_ids_of_draws_are_those_on_record():
  """The settings of records of drawn HMMs make the ids that these have had since."""
  folder = DOCS / 'results' / 'small' / 'figure_3_right'
  settings, row = registry.from_record(results.configs(folder)[0]), results.load(folder)[0]
  trial = Trial(settings, Point(*map(row.get, Point._fields)), row['trial'])
  assert (row['trial_id'], row['pretraining_id']) == (trial.id, trial.pretraining_id)
  assert row['fit_id'] == trial.fit_id(row['model'], row['method'])


def test_given_data_replace_draws(tmp_path):
  """Whatever the trial it has the sizes of the process, and is of it; the copy keeps every bit."""
  word = _written(tmp_path / 'mine.npz', MEMORY)
  settings, own = _read(distribution=word, memory__label_cell=1)
  assert (list(settings.grid()), settings.hmm.num_tokens) == ([Point(3, 2, 2)], 2)
  distribution = trial_lib.distribution_of(Trial(settings, Point(3, 2, 2), 1, data.given(own)(settings)))
  for array, expected in zip(distribution, MEMORY):
    np.testing.assert_array_equal(array, np.asarray(expected, array.dtype))
  data.keep([settings], own, tmp_path)
  kept = data.kept([settings], tmp_path)
  assert_same_bits(kept[settings.distribution], MEMORY._asdict())


# Three states and two tokens; a state of the HMM is a pair of them.
PAIRS = hj.from_transition_matrices(
  [[[0.2, 0.3, 0], [0, 0.5, 0.1], [0.4, 0, 0.1]], [[0.1, 0, 0.4], [0.2, 0, 0.2], [0, 0.5, 0]]]
)


@pytest.mark.slow
def test_labels_of_ones_own_see_the_states_of_matrices(tmp_path):
  """As `hj.beliefs` has them, kept in the workdir; without such labels, ids are those of the HMM."""
  own, seen = dict(distribution=_written(tmp_path / 'pairs.npz', PAIRS), label='mine:likely'), []

  def likely(texts, states):
    np.testing.assert_allclose(states, hj.beliefs(PAIRS, texts)[:, 0], atol=1e-6)
    seen.append(texts)
    return states[:, 0] > PAIRS.start_probs[0]

  settings, read = _read(**own, models=('exact',), methods=('head', 'posterior'))
  assert settings.num_states == (PAIRS.num_states,) and PAIRS.num_states > 3
  read |= {own['label']: code.Function(likely, 'one')}
  sweep.run([settings], tmp_path, QUIET, own=read)
  assert seen
  of_hmm = [_written(tmp_path / f'{name}.npz', each) for name, each in (('pairs', PAIRS), ('hmm', PAIRS.hmm))]
  digests = [_resolved(distribution=word).distribution.rpartition('-')[2] for word in of_hmm]
  assert digests[0] == digests[1] != settings.distribution.rpartition('-')[2]


@pytest.mark.parametrize('own', [dict(distribution='mess3'), dict(label='mine:likely')])
def test_nothing_of_the_paper_stands_beside_a_text_of_ones_own(tmp_path, own):
  """Neither its figure, nor a plan or a claim of the shipped config; a plan of one's own does."""
  settings = _resolved(**own)
  shipped = _resolved()
  assert shipped.figure.paper_overlay and not settings.figure.paper_overlay
  assert grids.plan_of(shipped) == shipped.plan == settings.plan and not grids.plan_of(settings)
  other = dataclasses.replace(settings, plan=shipped.plan[:1])
  assert grids.plan_of(other) == other.plan
  claims = [content.report(tmp_path, each, pd.DataFrame(), {}, ()).claim for each in (shipped, settings)]
  assert claims[0].startswith('Claim') and not claims[1]


@pytest.mark.parametrize(
  ('name', 'content', 'found'),
  [
    ('a.txt', '0 1\n2 3\n', 'tokens has the entry 3.*; valid are integers from 0 to 2'),
    ('a.npy', np.ones(4), 'valid are integers'),
    ('a.npy', np.ones((0, 4), int), 'shape'),
  ],
)
@pytest.mark.filterwarnings('error')
def test_a_corpus_has_only_token_ids(tmp_path, name, content, found):
  word = _written(tmp_path / name, content)
  with pytest.raises(SettingsError, match=f'^corpus_file is .*{found}'):
    _resolved(distribution='mess3', corpus_file=word)


def test_a_corpus_is_documents_or_one_stream(tmp_path):
  assert data.tokens(_written(tmp_path / 'a.npy', np.arange(3)), 3).shape == (1, 3)
  assert data.tokens(_written(tmp_path / 'a.txt', '\ufeff0 1 2\n2 1 0\n'), 3).shape == (2, 3)


def test_possible_documents_are_those_with_a_path():
  """By enumeration; a document keeps its memory."""
  process = MEMORY._replace(emission_matrix=np.array([[[1, 0], [1, 0], [0, 1]], [[1, 0], [1, 0], [1, 0]]]))
  joint, documents = joint_hmm(process), state_paths(2, 4)
  probs = [path_probs(joint, joint.emission_matrix.T[document]).sum() for document in documents]
  data.check_corpus('mine', process, documents[np.greater(probs, 0)])
  for index in np.flatnonzero(np.equal(probs, 0)):
    with pytest.raises(SettingsError, match='unlike document 0,'):
      data.check_corpus('mine', process, documents[[index]])


def test_a_process_whose_texts_tell_nothing_of_the_cell_of_the_label_is_refused():
  sizes = dict(num_states=(3,), memory__sizes=(2,), memory__cells=(2,), memory__label_cell=1)
  settings = settings_of('smoke', 'memory_cells', **sizes, methods=('head',), distribution='mine-0123456789ab')
  unread = MEMORY._replace(cell_index=np.zeros(3, int))
  with pytest.raises(SettingsError, match='^distribution is .*one label'):
    checks.check_draws(settings, {settings.distribution: unread._asdict()})


@pytest.mark.parametrize('name', ['hmm[1]', 'a.b-1', '\x1b[31m\udcff', 'x' * 245])
def test_a_kept_process_has_its_own_reference(tmp_path, monkeypatch, name):
  """Whatever characters its name has and however long that is."""
  monkeypatch.setenv('HOME', str(tmp_path))
  path = storage.located('~') / f'{name}.json'
  _written(path, processes.mess3())
  settings, own = _read(distribution=f'~/{name}.json')
  data.keep([settings], own, tmp_path)
  kept = tmp_path / data.FOLDER / f'{settings.distribution}.npz'
  assert _resolved(distribution=str(kept)) == settings


def test_a_named_process_takes_parameters(tmp_path):
  """Their digest is in the reference, which begins with the name; a parameter that does not exist is refused."""
  references = [_resolved(distribution=f'mess3{words}').distribution for words in ('', ':alpha=0.6')]
  assert {reference[:6] for reference in references} == {'mess3-'} and len(set(references)) == 2
  with pytest.raises(SettingsError, match='^distribution is .*beta'):
    _resolved(distribution='mess3:beta=1')


def _params(bert):
  """In half precision."""
  return jax.tree.map(np.float16, random_params(bert))


def _model_folder(path, num_tokens=3, process=None, **changes):
  """The path of a folder with the smallest BERT, [MASK] last, and its settings as those of a config."""
  bert = SMALLEST.clone(num_tokens=num_tokens, max_positions=24, **changes)
  hj.save(path, hj.BertModel(bert), _params(bert), process)
  return str(path)


def test_a_model_from_elsewhere_is_tuned_in_place_of_a_pretraining(tmp_path):
  """Its sizes and its process are taken; its arrays, in float32, decide the id; its copy is read in its place."""
  folder = _model_folder(tmp_path / 'mine', process=processes.mess3())
  settings, own = _read(pretrained_from=folder)
  assert settings.bert_module() == SMALLEST.clone(num_tokens=3, max_positions=24)
  assert (settings.pretrained_from[:5], settings.num_states, settings.distribution[:13]) == (
    'mine-',
    (3,),
    'distribution-',
  )
  trial = Trial(settings, Point(3), 0)
  ids = [
    Trial(dataclasses.replace(settings, pretrained_from=name), Point(3), 0).pretraining_id
    for name in (settings.pretrained_from.replace('mine', 'yours'), 'mine-0123456789ab', '')
  ]
  assert trial.pretraining_id == ids[0] and len({*ids}) == 3
  planned = pretraining.planned(settings, None, jax.random.key(0))
  home = pretraining.home(settings, planned, tmp_path / trial.pretraining_id)
  for given in (own[settings.pretrained_from], None):
    params = pretraining.pretrained_params(home._replace(given=given), QUIET)
    assert_same_bits(params, _params(SMALLEST.clone(num_tokens=3, max_positions=24)))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype('float32')}
  with pytest.raises(SettingsError, match='^pretrained_from is .mine-.*; valid is one whose copy is in'):
    pretraining.pretrained_params(home._replace(directory=tmp_path / 'other'), QUIET)


@pytest.mark.parametrize(
  ('changes', 'sentence'),
  [
    (dict(distribution='mess3'), '^hmm.num_tokens is 4; valid is 3, set by mess3$'),
    (dict(bert__max_positions=1), '^bert.max_positions is 1; valid is 24, set by '),
    (dict(pretrained_from='nowhere'), '^pretrained_from is .nowhere.*; valid is a folder of'),
  ],
)
def test_a_model_from_elsewhere_that_does_not_fit_is_refused(tmp_path, changes, sentence):
  changes = dict(pretrained_from=_model_folder(tmp_path / 'mine', num_tokens=4)) | changes
  values = flat(config_of('smoke', **changes).to_dict())
  with pytest.raises(SettingsError, match=sentence):
    data.resolve(values, [name.replace('__', '.') for name in changes])
    registry.from_record(values)
