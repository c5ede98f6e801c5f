"""XLA compiler options for programs outside the hot loop."""

# For a program that runs once or twice: optimising it costs more than it saves, and its results are the same.
ONCE = {'xla_backend_optimization_level': 1}
# For one whose bits must equal those of the same operations outside `jax.jit`: fused arithmetic rounds differently.
UNFUSED = {'xla_backend_optimization_level': 0, 'xla_disable_hlo_passes': 'fusion'}
