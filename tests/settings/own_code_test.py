"""A model of the user's own: what is imported and called, what is refused, and what names its records."""

import importlib

from conftest import dirichlet_hmm
import jax
import numpy as np
import pytest
from settings_cases import settings_of

from experiments.settings import own_code
from experiments.settings.fields import SettingsError
from hmm_jax.model import ExactModel

KEY = np.zeros(2, np.uint32)
# A module whose functions return what a model is not, each with what is said of it.
WRONG = {
  'lambda distribution: None': 'TypeError.*2 were given',
  'lambda *_: None': 'TypeError.*unpack',
  'lambda *_: (1, 2)': "AttributeError.*'int'",
  'lambda hmm, _: (ExactModel([3]), hmm)': 'TypeError.*unhashable',
  'lambda hmm, _: (ExactModel(3), 3)': 'AttributeError.*joint_initial_probs',
  'lambda hmm, _: (Short(4), hmm)': r'shape \(1, 1, 3, 4\), and not \(1, 1, 3, 3\)',
  'ExactModel.nothing': 'AttributeError.*nothing',
}


@pytest.fixture
def write(tmp_path, monkeypatch):
  """Makes a module of a name, and forgets what was imported of it."""
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(own_code, '_imported', {})
  monkeypatch.setattr(own_code.sys, 'dont_write_bytecode', True)

  def write(name, text):
    (tmp_path / f'{name}.py').write_text(text)
    own_code.sys.modules.pop(name, None)
    importlib.invalidate_caches()

  return write


@pytest.mark.parametrize('function', WRONG)
def test_what_is_no_model_is_refused_in_a_sentence(write, function):
  short = 'class Short(ExactModel):\n  def predict(self, *given):\n    return super().predict(*given)[..., 1:]\n\n'
  write('own_wrong', f'from hmm_jax.model import ExactModel\n\n{short}build = {function}\n')
  with pytest.raises(SettingsError, match=f'(?s)^model is .own_wrong:build.*{WRONG[function]}') as refused:
    own_code.import_named('own_wrong:build')
    own_code.own_model('own_wrong:build', dirichlet_hmm(np.random.default_rng(0), 3), KEY)
  assert '\n' not in str(refused.value) and 'valid is' in str(refused.value)


@pytest.mark.parametrize(
  ('name', 'says'),
  [
    ('own_nowhere:build', 'ModuleNotFoundError'),
    ('own_ends:build', 'SystemExit'),
    ('own_ends', 'valid is MODULE:FUNCTION'),
    ('sys:intern', 'valid is MODULE:FUNCTION of a Python file'),
  ],
)
def test_what_cannot_be_imported_is_refused_in_a_sentence(write, name, says):
  write('own_ends', 'raise SystemExit(3)')
  with pytest.raises(SettingsError, match=f'^model is {name!r}.*{says}'):
    own_code.import_named(name)


def test_a_model_is_made_of_the_distribution_of_a_trial(write):
  """Its parameters are arrays of JAX on a device, whatever the function returns."""
  write('own_right', 'from hmm_jax.model import ExactModel\n\nbuild = lambda hmm, _: (ExactModel(4), hmm)\n')
  own_code.import_named('own_right:build')
  hmm = dirichlet_hmm(np.random.default_rng(0), 3)
  model, params = own_code.own_model('own_right:build', hmm, KEY)
  assert model == ExactModel(4) and all(isinstance(leaf, jax.Array) for leaf in params)
  np.testing.assert_allclose(params.transition_matrix, hmm.transition_matrix, rtol=1e-6)


def test_a_function_and_its_file_name_the_records_on_it_alone(write):
  """Another file of the module makes the records on it anew, and no other; the trial stays the same."""
  settings = settings_of('smoke', models=('own', 'exact'), model='own_named:build')
  with pytest.raises(SettingsError, match='^model is .own_named:build.*record'):
    settings.fit_id('head', 'own')
  ids = []
  for text in ('build = print', 'build = print  # another'):
    write('own_named', text)
    own_code._imported.clear()
    own_code.import_named('own_named:build')
    ids.append([settings.fit_id('head', model) for model in ('own', 'exact', 'bert')])
  (own, exact, bert), (other, *rest) = ids
  assert exact == bert == settings_of('smoke').fit_id('head', 'exact') and rest == [exact, bert]
  assert len({own, other, exact}) == 3
