"""Compiler options of XLA for programs that are no hot loop."""

# For a program that runs once or twice: optimising it costs more than it saves, and its results are the same.
ONCE = {'xla_backend_optimization_level': 1}
# For one whose bits must be those of the same operations outside `jax.jit`, since fused arithmetic rounds otherwise.
UNFUSED = {'xla_backend_optimization_level': 0, 'xla_disable_hlo_passes': 'fusion'}
