"""What a step of pretraining communicates on eight devices, as XLA compiles it.

`XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m experiments.studies.cost.communication_report` compiles
the steps, runs none, and writes the record that `python -m experiments.studies.cost.cost_report` tabulates beside the
prediction.
"""

import jax

from experiments.pipeline import communication, pretraining
from experiments.records import files
from experiments.records.environment import environment
from experiments.settings.grid import Settings
from experiments.studies.cost import cost_report
from hmm_jax import sharding
from hmm_jax.sampling import token_dtype

SCALES = ('small', 'paper')
MESHES = ((8, 1, 1), (1, 8, 1), (2, 1, 4), (2, 2, 2))


def compiled_text(s: Settings, sizes: tuple[int, ...]) -> str:
  """The HLO of a call of steps over a mesh of these sizes."""
  init, train_steps = pretraining.compiled(
    s.bert_module(), s.pretrain, s.pretrain.num_steps, sharding.make_mesh(*sizes)
  )
  key = jax.eval_shape(lambda: jax.random.key(0))
  corpus = jax.ShapeDtypeStruct((s.corpus.num_chunks, s.corpus.chunk_length), token_dtype(s.hmm.num_tokens))
  return train_steps.lower(jax.eval_shape(init, key), corpus, key).compile().as_text()


def main() -> None:
  made, rows = environment(jax.devices()), []
  for scale in SCALES:
    s = cost_report.shipped(scale)
    for sizes in MESHES:
      shape = dict(zip(sharding.AXES, sizes))
      found = communication.sent(compiled_text(s, sizes), shape, s.pretrain.steps_per_call)
      sent = [[operation, axes, size] for (operation, axes), size in sorted(found.items())]
      rows.append({'scale': scale, 'mesh': shape, 'bytes_a_step': sent, 'jaxlib': made['packages']['jaxlib']})
      print(rows[-1], flush=True)
  files.write_json_lines(cost_report.COMMUNICATION, rows)


if __name__ == '__main__':
  main()
