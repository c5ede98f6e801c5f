"""Facts about the mesh, the partition specs, and training over them."""

import pathlib
import re
import tempfile

from conftest import assert_same_bits
from forked import run_on_devices
import jax
import numpy as np
import pytest
from run_cases import QUIET
from settings_cases import settings_of

from experiments.pipeline import pretraining
from experiments.records import checkpoints
from hmm_jax.models import pretraining as pretraining_lib, sharding

SIZES = dict(
  bert__num_layers=2,
  bert__dropout_rate=0.1,
  bert__init_stddev=0.1,
  pretrain__batch_size=16,
  pretrain__learning_rate=1e-2,
  pretrain__warmup_steps=5,
  pretrain__steps_per_call=20,
)
OF_ADAMW = settings_of('smoke', **SIZES, pretrain__optimizer='adamw')
OF_MUON = settings_of('smoke', **SIZES, pretrain__optimizer='muon')


def _specs(settings, sizes):
  """The spec of every leaf of a state, by its path."""
  optimizer = settings.pretrain.gradient_transformation(40)
  bert = settings.bert_module()
  state = jax.eval_shape(lambda: pretraining_lib.init_train_state(jax.random.key(0), bert, optimizer))
  mesh = jax.sharding.AbstractMesh(sizes, sharding.AXES)
  leaves = jax.tree.leaves_with_path(sharding.state_shardings(mesh, state))
  return {jax.tree_util.keystr(path, simple=True, separator='/'): tuple(leaf.spec) for path, leaf in leaves}


@pytest.mark.parametrize('settings', [OF_ADAMW, OF_MUON])
def test_every_moment_lies_as_its_parameter(settings):
  """The matrices of heads and of the feed-forward layer are split over `tensor`."""
  specs = _specs(settings, (2, 2))
  moments = {name: re.split('/(?:mu|nu)/', name)[1] for name in specs if re.search('/(mu|nu)/', name)}
  assert {f'params/{name}' for name in moments.values()} == {name for name in specs if name.startswith('params/')}
  for moment, name in moments.items():
    spec = specs[f'params/{name}']
    assert specs[moment] == spec
    assert ('tensor' in spec) == bool(re.search('qkv/kernel|attention_out/kernel|ffn_in|ffn_out/kernel', name)), name


def test_an_axis_that_does_not_divide_is_whole():
  """Only axes of a leaf that the mesh divides are split: 16 by 2 and by 3."""
  assert _specs(OF_ADAMW, (1, 2))['params/layers_0/ffn_in/kernel'] == (None, 'tensor')
  assert not any(_specs(OF_ADAMW, (1, 3))['params/layers_0/qkv/kernel'])


def _train(settings, sizes):
  """The state and losses after 20 steps from where the mesh starts, and the compiled program."""
  mesh, p = sharding.make_mesh(*sizes), settings.pretrain
  init, steps = pretraining.compiled(settings.bert_module(), p, p.num_steps, mesh)
  corpus = np.uint8((np.random.default_rng(0).integers(10, size=(64, 1)) + np.arange(16)) % 10)
  inputs = init(jax.random.key(0)), *jax.device_put((corpus, jax.random.key(3)), sharding.replicated(mesh))
  program = steps.lower(*inputs).compile()
  state, losses = program(*inputs)
  assert all(leaf.is_deleted() for leaf in jax.tree.leaves(inputs[0]))
  return state, np.asarray(losses), program.as_text()


def check_meshes():
  """Run in a process of its own that has eight devices."""
  for settings, sizes in ((OF_ADAMW, (4, 2)), (OF_MUON, (4, 2))):
    _, expected, _ = _train(settings, (1, 1))
    state, losses, text = _train(settings, sizes)
    np.testing.assert_allclose(losses, expected, rtol=0, atol=5e-6)
    assert expected[-1] < expected[0] - 0.05
    for leaf, place in zip(*map(jax.tree.leaves, (state, sharding.state_shardings(sharding.make_mesh(*sizes), state)))):
      assert leaf.sharding.is_equivalent_to(place, leaf.ndim)
    # Each device has its rows of a batch of 16.
    assert 'u8[4,16]' in text and 'u8[16,16]' not in text

  other = sharding.make_mesh(1, 2)
  with tempfile.TemporaryDirectory() as directory:
    checkpoints.save(pathlib.Path(directory), 20, state)
    placed = lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
    like = jax.tree.map(placed, state, sharding.state_shardings(other, state))
    restored = checkpoints.restore(pathlib.Path(directory), like, QUIET)
  assert_same_bits(restored, state)
  assert {leaf.sharding.mesh for leaf in jax.tree.leaves(restored)} == {other}


@pytest.mark.slow
def test_meshes_agree_and_restore_each_others_checkpoints():
  """Over 20 steps with dropout the losses of each mesh are those of one device, to 5e-6."""
  tests = str(pathlib.Path(__file__).parents[1])
  run_on_devices(
    8, f'import sys\nsys.path.append({tests!r})\nfrom library import sharding_test\nsharding_test.check_meshes()'
  )
