"""A model of the user's own from the command line: it is tuned like any other, resumed, and in the table."""

import contextlib
import importlib
import io
import os
import sys

import pytest

from experiments import main as main_lib
from experiments.records import load
from experiments.settings import own_code

MODULE = 'from hmm_jax.model import ExactModel\n\nbuild = lambda hmm, key: (ExactModel(hmm.num_tokens), hmm)\n'
ARGUMENTS = (
  '--config=prompt_vs_head:smoke',
  '--config.model=own_exact:build',
  '--config.models=own,exact',
  '--config.num_states=4',
  '--config.tasks_per_trial=1',
  '--config.downstream.num_train=64',
  '--config.prompt.num_epochs=1',
  '--config.head.num_epochs=1',
  f'--config.compilation_cache={os.environ["JAX_COMPILATION_CACHE_DIR"]}',
)


@pytest.mark.slow
def test_a_model_of_ones_own_is_tuned_resumed_and_shown(tmp_path, monkeypatch):
  """One that is the exact model has its numbers; its records are made anew where its file has changed, and no other."""
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(own_code, '_imported', {})
  workdir, module = tmp_path / 'work', tmp_path / 'own_exact.py'
  module.write_text(MODULE)

  def run():
    with contextlib.redirect_stdout(io.StringIO()):
      assert main_lib.main(['main', *ARGUMENTS, f'--workdir={workdir}']) == 0
    return {path.name: path.stat().st_mtime_ns for path in workdir.glob('trials/*/*-task0.json')}

  made = run()
  records = load(workdir).set_index(['model', 'method'])
  assert len(records) == len(made) == 4
  same = records.drop(columns='fit_id').select_dtypes(['number', 'bool'])
  assert same.loc['own'].equals(same.loc['exact'])
  assert 'own model' in (workdir / 'table.txt').read_text() and (workdir / 'figure_3_left.png').exists()
  assert run() == made
  # Its name on record is not enough.
  with contextlib.redirect_stdout(io.StringIO()):
    assert main_lib.main(['main', *ARGUMENTS, '--mode=verify', f'--workdir={workdir}']) == 0
  module.write_text(f'{MODULE}# Another file.\n')
  own_code._imported.clear()
  again = run()
  assert made.items() < again.items() and {name[:4] for name in again.keys() - made.keys()} == {'own-'}


@pytest.mark.parametrize(('function', 'says'), [('lambda *_: None', 'unpack'), ('print(1 / 0)', 'ZeroDivisionError')])
def test_what_is_no_model_ends_a_run_before_it_writes(tmp_path, monkeypatch, function, says):
  """With status 2 and one sentence, whether the module fails or what its function returns."""
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(own_code, '_imported', {})
  monkeypatch.setattr(main_lib, 'set_up', lambda settings: None)
  (tmp_path / 'own_none.py').write_text(f'build = {function}\n')
  monkeypatch.delitem(sys.modules, 'own_none', raising=False)
  importlib.invalidate_caches()
  words, said = [word.replace('own_exact', 'own_none') for word in ARGUMENTS], io.StringIO()
  with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
    assert main_lib.main(['main', *words, f'--workdir={tmp_path / "work"}']) == 2
  assert said.getvalue().startswith("error: model is 'own_none:build', which fails with") and says in said.getvalue()
  assert said.getvalue().count('\n') == 1 and not (tmp_path / 'work').exists()
