"""XLA compiler options for programs outside the hot loop."""

import importlib.metadata

# For a program that runs once or twice: optimising it costs more than it saves, and its results are the same.
ONCE = {'xla_backend_optimization_level': 1}
# For one whose bits must equal those of the same operations outside `jax.jit`: fused arithmetic rounds differently.
UNFUSED = {'xla_backend_optimization_level': 0, 'xla_disable_hlo_passes': 'fusion'}
# XLA's fusion emitters take over half of the CPU time of compiling a small program, and make a pretraining step 5%
# faster. XLA exits on an unknown option; these versions know this one.
_KNOWN = ('xla_cpu_use_fusion_emitters',) if importlib.metadata.version('jaxlib') in ('0.10.2', '0.12.0.1') else ()
QUICK = dict.fromkeys(_KNOWN, False)
# The same for XLA_FLAGS.
QUICK_FLAGS = tuple(f'--{name}=false' for name in _KNOWN)
