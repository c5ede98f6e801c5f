"""What is compiled, and how often: counted by JAX's own events."""

import jax
import numpy as np
import pytest
import rich.console

from configs import prompt_vs_head
from experiments import config as config_lib
from experiments import pretraining
from experiments import trial as trial_lib
from experiments.progress import Reporter
from experiments.settings import Point
from hmm_jax import compilation
from hmm_jax import tuning
from hmm_jax.hmm import random_hmm
from hmm_jax.model import exact_model

_COMPILED = []
jax.monitoring.register_event_duration_secs_listener(
  lambda event, duration, **_: _COMPILED.append(event) if event.endswith('backend_compile_duration') else None
)


@pytest.fixture(scope='module')
def settings():
  config = prompt_vs_head.get_config('smoke')
  config.update(num_states=(3,), models=('exact',), methods=('head',), num_trials=2)
  return config_lib.from_config(config)


def test_a_second_trial_of_one_shape_compiles_nothing(settings, tmp_path):
  """Its distribution, texts, tasks and heads are others, and every program of the first trial serves it."""
  counts = []
  for number in range(2):
    before = len(_COMPILED)
    trial = trial_lib.Trial(settings, Point(3), number, tmp_path)
    trial_lib.run(trial, Reporter(rich.console.Console(quiet=True)))
    counts.append(len(_COMPILED) - before)
    assert not trial.missing()
  assert 0 < counts[0] <= 70
  assert counts[1] == 0


def test_tuners_are_equal_where_they_train_the_same(settings):
  """A head is one tuner on whichever model's features; a prompt is part of its model."""
  exact, bert = exact_model(settings.hmm.num_tokens), pretraining.tuned_model(settings)
  assert tuning.head_tuner(exact, 2) == tuning.head_tuner(bert, 2)
  assert hash(tuning.head_tuner(exact, 2)) == hash(tuning.head_tuner(bert, 2))
  assert tuning.head_tuner(exact, 2) != tuning.head_tuner(exact, 3)
  init_prompt = lambda key, frozen: np.zeros((1, 1))
  assert tuning.prompt_tuner(exact, 2, init_prompt) != tuning.prompt_tuner(bert, 2, init_prompt)


@pytest.mark.parametrize('num_states', [4, 6])
def test_a_compiled_draw_has_the_bits_of_one_that_is_not(num_states):
  """A pretrained model is found again by its settings, so its text must not hang on how the draw was compiled."""
  temperatures = dict(transition_temperature=0.01, initial_temperature=10.0, emission_temperature=0.01)
  draw = jax.jit(random_hmm, static_argnames=('num_states', 'num_tokens'), compiler_options=compilation.UNFUSED)
  compiled = draw(jax.random.key(0), num_states=num_states, num_tokens=10, **temperatures)
  for mine, eager in zip(compiled, random_hmm(jax.random.key(0), num_states, 10, **temperatures), strict=True):
    np.testing.assert_array_equal(mine, eager)
