"""XLA compiler options of programs."""

from collections.abc import Callable
import functools
from typing import Any, TypeVar

import jax

# No public function tells that arrays that are known are used inside of `jax.jit`.
from jax._src.core import trace_state_clean as is_outermost

__all__ = ['ONCE', 'UNFUSED', 'is_outermost', 'quick', 'unfused']

FunctionT = TypeVar('FunctionT', bound=Callable[..., Any])

# For a program that runs once or twice: optimising it costs more than it saves, and its results are the same.
ONCE = {'xla_backend_optimization_level': 1}
# For one whose bits must equal those of the same operations outside `jax.jit`: fused arithmetic rounds differently.
UNFUSED = {'xla_backend_optimization_level': 0, 'xla_disable_hlo_passes': 'fusion'}
# On a CPU it saves 40% of the time to compile a program of inference or tuning, which runs as fast; a step of
# pretraining would take longer. XLA refuses an option that it does not know, and a later one may not know this.
_QUICK = {'xla_cpu_use_fusion_emitters': False} if jax.__version_info__ < (0, 11) else {}


def unfused(*static: str) -> Callable[[FunctionT], FunctionT]:
  """A decorator: outside of `jax.jit` and the like a function is one program, with the bits of its operations apart."""

  def wrap(function: FunctionT) -> FunctionT:
    compiled = jax.jit(function, static_argnames=static, compiler_options=UNFUSED)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
      # JAX takes options for outermost programs alone.
      return (compiled if is_outermost() else function)(*args, **named)

    return call  # type: ignore[return-value]

  return wrap


def quick(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
  """`jax.jit(function, **options)` that on a CPU compiles sooner; its results may round otherwise."""
  compiled = jax.jit(function, compiler_options=_QUICK, **options)
  plain = jax.jit(function, **options)

  @functools.wraps(function)
  def call(*args: Any, **named: Any) -> Any:
    is_quick = is_outermost() and jax.default_backend() == 'cpu'
    return (compiled if is_quick else plain)(*args, **named)

  return call
