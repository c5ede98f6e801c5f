"""A model of the user's own is tuned like any other, resumed and in the table; what is none is refused."""

import contextlib
import io

import pytest
from run_cases import exact_settings, QUIET

from experiments import main as main_lib
from experiments.pipeline import sweep
from experiments.records import load
from experiments.settings import own_code
from hmm_jax.model import ExactModel

NAME = 'own_model_of_a_test:build'


def test_a_model_of_ones_own_is_tuned_resumed_and_shown(tmp_path, monkeypatch):
  """One that is the exact model has its numbers; where the file of its module changes, its records alone are others."""
  settings, ids = exact_settings(num_states=(4,), models=('own', 'exact'), model=NAME), []
  for digest in ('one', 'another'):
    function = own_code.Function(lambda hmm, key: (ExactModel(10), hmm), digest)
    monkeypatch.setitem(own_code._imported, NAME, function)
    sweep.run(settings, tmp_path, QUIET)
    records = load(tmp_path).set_index('model')
    ids.append(records['fit_id'])
  numbers = records.select_dtypes('number')
  assert numbers.loc['own'].equals(numbers.loc['exact']) and list(ids[0] == ids[1]) == [True, False]
  assert 'head\nown model' in sweep.tables(records.reset_index(), settings)['accuracy'].frame


SHORT = """
from hmm_jax.model import ExactModel
class Short(ExactModel):
  def predict(self, *given):
    return super().predict(*given)[..., 1:]
build = lambda hmm, key: (Short(10), hmm)
"""


@pytest.mark.parametrize(
  ('module', 'says'),
  [('', 'AttributeError'), ('1 / 0', 'ZeroDivisionError'), ('build = print', 'TypeError'), (SHORT, '(1, 1, 3, 9)')],
)
def test_what_is_no_model_ends_a_run_before_it_writes(tmp_path, monkeypatch, module, says):
  """With one sentence, whether its module fails, has no such function, or the function returns something else."""
  (tmp_path / 'own_model_of_a_test.py').write_text(module)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(own_code, '_imported', {})
  monkeypatch.delitem(own_code.sys.modules, 'own_model_of_a_test', raising=False)
  monkeypatch.setattr(main_lib, 'set_up', lambda settings: None)
  words = f'main --config=prompt_vs_head:smoke --config.models=own --config.model={NAME} --workdir={tmp_path}/work'
  with contextlib.redirect_stderr(io.StringIO()) as said:
    assert main_lib.main(words.split()) == 2
  (line,) = said.getvalue().splitlines()
  assert line.startswith(f'error: model is {NAME!r}') and says in line and not (tmp_path / 'work').exists()
