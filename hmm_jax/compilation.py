"""Compiler options of XLA for programs that are no hot loop."""

import importlib.metadata

# For a program that runs once or twice: optimising it costs more than it saves, and its results are the same.
ONCE = {'xla_backend_optimization_level': 1}
# For one whose bits must be those of the same operations outside `jax.jit`, since fused arithmetic rounds otherwise.
UNFUSED = {'xla_backend_optimization_level': 0, 'xla_disable_hlo_passes': 'fusion'}
# For XLA_FLAGS: its fusion emitters take over half of the CPU time of compiling a small program, and make a step of
# pretraining a twentieth faster. XLA ends the process at a flag that it does not know; these versions know it.
QUICK_FLAGS = (
  ('--xla_cpu_use_fusion_emitters=false',) if importlib.metadata.version('jaxlib') in ('0.10.2', '0.12.0.1') else ()
)
