"""XLA compiler options for programs outside the hot loop."""

from collections.abc import Callable
import functools
from typing import Any, TypeVar

import jax

# No public function tells that arrays that are known are used inside of `jax.jit`.
from jax._src.core import trace_state_clean as is_outermost

__all__ = ['ONCE', 'UNFUSED', 'is_outermost', 'unfused']

FunctionT = TypeVar('FunctionT', bound=Callable[..., Any])

# For a program that runs once or twice: optimising it costs more than it saves, and its results are the same.
ONCE = {'xla_backend_optimization_level': 1}
# For one whose bits must equal those of the same operations outside `jax.jit`: fused arithmetic rounds differently.
UNFUSED = {'xla_backend_optimization_level': 0, 'xla_disable_hlo_passes': 'fusion'}


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
