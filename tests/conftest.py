"""Shared by test modules: the enumeration oracle, and running things in float64 or compiled fast."""

import collections
import contextlib
import functools
import gc
import itertools
from multiprocessing import forkserver
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest

from hmm_jax.distributions.hmm import HMM
from hmm_jax.inference.posterior import Posterior

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / 'docs'

# Less than half of the CPU time to compile: without the emitters of fused kernels, whose code takes long to optimise,
# and without splitting a program for several threads. XLA reads its flags when JAX first looks for devices.
_CHEAP_CODE = '--xla_cpu_use_fusion_emitters=false', '--xla_cpu_parallel_codegen_split_count=1'
if not {*_CHEAP_CODE} <= {*os.environ.get('XLA_FLAGS', '').split()}:
  flags = os.environ | {'XLA_FLAGS': ' '.join([*_CHEAP_CODE, os.environ.get('XLA_FLAGS', '')])}
  # XLA ends a process that names a flag it does not know. Workers, and processes that tests start, inherit the flags.
  tried = subprocess.run([sys.executable, '-c', 'import jax; jax.devices()'], env=flags, capture_output=True)
  os.environ |= {} if tried.returncode else flags

if 'JAX_COMPILATION_CACHE_DIR' not in os.environ:
  # The workers of a session, the processes that tests start and the sessions after this one share what they compile.
  # The folder is one that `pytest --cache-clear` empties.
  cache = str(ROOT / '.pytest_cache' / 'd' / 'jax')
  os.environ |= {'JAX_COMPILATION_CACHE_DIR': cache, 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0'}
  jax.config.update('jax_compilation_cache_dir', cache)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)


_EVENTS = collections.Counter()
jax.monitoring.register_event_duration_secs_listener(lambda event, seconds, **_: _EVENTS.update([event]))


def count_of_programs():
  """The number of programs that this process has compiled, or read from the cache, by JAX's own events."""
  return _EVENTS['/jax/core/compile/backend_compile_duration']


def pytest_collection_finish():
  """Tracing leaves little garbage, and looking for it among all that JAX keeps is a twentieth of the CPU time."""
  gc.collect()
  gc.freeze()
  gc.set_threshold(20_000, 10, 10)


@pytest.fixture(scope='session')
def temporary_folder(tmp_path_factory):
  """The folder that this process and those that its tests start make temporary files in."""
  folder = tmp_path_factory.mktemp('left')
  with pytest.MonkeyPatch.context() as patched:
    patched.setenv('TMPDIR', str(folder))
    patched.setattr(tempfile, 'tempdir', str(folder))
    # PyTorch makes a folder for compiled programs when it is imported, and keeps it.
    patched.setenv('TORCHINDUCTOR_CACHE_DIR', str(tmp_path_factory.mktemp('torch')))
    yield folder


@pytest.fixture(scope='module', autouse=True)
def nothing_is_left(temporary_folder):
  """Fail where the tests of a module leave a process, a thread or a temporary file behind."""
  before = _living(temporary_folder)
  yield
  # A process that was ended may take a moment to be gone.
  deadline = time.monotonic() + 30
  while (left := _living(temporary_folder) - before) and time.monotonic() < deadline:
    time.sleep(0.1)
  assert not left, f'left behind: {left}'


@pytest.fixture(scope='session')
def memory():
  """This process's resident memory in bytes, by 'cleared', after programs were last dropped."""
  return {'cleared': psutil.Process().memory_info().rss}


@pytest.fixture(scope='module', autouse=True)
def few_programs(memory):
  """Drop compiled programs, which stay in the cache on disk, once resident memory has grown by 0.4 GB."""
  yield
  resident = lambda: psutil.Process().memory_info().rss
  if resident() > memory['cleared'] + 4e8:
    jax.clear_caches()
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    memory['cleared'] = resident()


def _living(folder):
  """The processes that have `folder` for temporary files, threads that must end, and temporary files."""
  found = {f'thread {thread.name}' for thread in threading.enumerate() if not thread.daemon}
  # The folder of multiprocessing's fork server, which lives as long as the session.
  found |= {f'file {path.name}' for path in folder.iterdir() if not path.name.startswith('pymp-')}
  for process in psutil.process_iter():
    with contextlib.suppress(psutil.Error):
      if process.pid != os.getpid() and process.environ().get('TMPDIR') == str(folder):
        is_server = process.ppid() == os.getpid() and any('multiprocessing' in word for word in process.cmdline())
        if not is_server:
          found.add(f'process {process.pid} {process.cmdline()}')
  return found


def in_float64(function, *arguments):
  """`function` of the arguments with every floating-point leaf in float64; the result as numpy arrays."""

  def convert(leaf):
    leaf = np.asarray(leaf)
    return jnp.asarray(leaf, jnp.float64 if np.issubdtype(leaf.dtype, np.floating) else leaf.dtype)

  with jax.enable_x64(True), compiling_fast():
    return jax.tree.map(np.asarray, function(*jax.tree.map(convert, arguments)))


@pytest.fixture(scope='session')
def reduced_run(tmp_path_factory):
  """(experiment, scale) -> the workdir of its run with the numbers of `reduce`, one for all workers of the session."""
  from reduced_runs import finished

  folder = tmp_path_factory.getbasetemp()
  folder = folder.parent if 'PYTEST_XDIST_WORKER' in os.environ else folder
  with pytest.MonkeyPatch.context() as patched:
    # Without it the benchmark compiles a peer with a compiler that leaves threads and files.
    patched.setenv('TORCHDYNAMO_DISABLE', '1')
    yield functools.partial(finished, folder / 'reduced')


@pytest.fixture(scope='module', autouse=True)
def without_optimisation(request):
  """Compile without XLA optimisation, but for a module that has IS_OPTIMISED, since its results depend on it."""
  with contextlib.nullcontext() if hasattr(request.module, 'IS_OPTIMISED') else compiling_fast():
    yield


@pytest.fixture(scope='module')
def cheap_commands(without_optimisation):
  """Processes that are started compile fast too, and configs are found from the root."""
  # Programs of the modules before, which may be of either kind, are dropped.
  jax.clear_caches()
  with contextlib.chdir(ROOT):
    yield


@contextlib.contextmanager
def compiling_fast():
  """Compile without XLA optimisation: small programs cost more to optimise than to run."""
  before = jax.config.values['jax_disable_most_optimizations']
  jax.config.update('jax_disable_most_optimizations', True)
  try:
    with pytest.MonkeyPatch.context() as patched:
      # Processes that tests start do so too.
      patched.setenv('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')
      yield
  finally:
    jax.config.update('jax_disable_most_optimizations', before)


def pytest_sessionfinish():
  """Stop the fork server, if it runs, so that the CPU time of its children is counted."""
  forkserver._forkserver._stop()


def at(tree, index):
  """The tree of what each array has there."""
  return jax.tree.map(lambda x: x[index], tree)


def assert_same_bits(first, second):
  jax.tree.map(np.testing.assert_array_equal, first, second)


def dirichlet_hmm(rng, num_states, num_tokens=4):
  """A numpy HMM without small probabilities, float64."""
  return HMM(
    rng.dirichlet(np.ones(num_states)),
    rng.dirichlet(np.ones(num_states), num_states),
    rng.dirichlet(np.ones(num_tokens), num_states),
  )


def joint_hmm(hmm):
  """The `HMM` of the joint states of a `MemoryHMM`, entry by entry by the definition in section 4; float64."""
  memory_size, num_states, _ = hmm.emission_matrix.shape
  memories = list(itertools.product(range(memory_size), repeat=hmm.memory_probs.ndim))
  initial = hmm.memory_probs[..., None] * np.broadcast_to(hmm.initial_probs, (*hmm.memory_probs.shape, num_states))
  emissions = [hmm.emission_matrix[memory[hmm.cell_index[h]], h] for memory in memories for h in range(num_states)]
  return HMM(initial.ravel(), np.kron(np.eye(len(memories)), hmm.transition_matrix), np.array(emissions))


def state_paths(num_states, length):
  """All H^T state paths, [N, T]."""
  return np.array(list(itertools.product(range(num_states), repeat=length)))


def path_probs(hmm, likelihoods):
  """P[path, evidence] of each of `state_paths`, [N]."""
  paths = state_paths(*likelihoods.shape[::-1])
  probs = hmm.initial_probs[paths[:, 0]] * likelihoods[0, paths[:, 0]]
  for t in range(1, len(likelihoods)):
    probs = probs * hmm.transition_matrix[paths[:, t - 1], paths[:, t]] * likelihoods[t, paths[:, t]]
  return probs


def enumerated_posterior(hmm, likelihoods, xp=np):
  """The `Posterior` by its definition, a sum over state paths; with `xp=jnp` it can be differentiated."""
  length, num_states = likelihoods.shape
  ones = xp.ones_like(likelihoods)

  def state_probs(t, kept):
    """P[H_t | the likelihood rows of the positions `kept`], summed over paths up to the last of them and t."""
    observed = np.isin(np.arange(length), kept)[:, None]
    end = max([t, *kept]) + 1
    probs = path_probs(hmm, xp.where(observed, likelihoods, ones)[:end])
    weights = probs @ np.eye(num_states)[state_paths(num_states, end)[:, t]]
    return xp.where(weights.sum() > 0, weights / xp.where(weights.sum() > 0, weights.sum(), 1), 0)

  times = range(length)
  evidence = path_probs(hmm, likelihoods).sum()
  return Posterior(
    filtered_probs=xp.stack([state_probs(t, range(t + 1)) for t in times]),
    predicted_probs=xp.stack([state_probs(t, range(t)) for t in times]),
    smoothed_probs=xp.stack([state_probs(t, times) for t in times]),
    leave_one_out_probs=xp.stack([state_probs(t, [s for s in times if s != t]) for t in times]),
    marginal_loglik=xp.where(evidence > 0, xp.log(xp.where(evidence > 0, evidence, 1)), -xp.inf),
  )
