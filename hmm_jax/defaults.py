"""The defaults of the small scale, for a CPU with two cores: of `pretrain`, `draw_task`, `tune` and configs/base.py.

Plain data, which whoever reads it copies.
"""

from typing import Any

# The text of pretraining, and the model.
CORPUS: dict[str, Any] = dict(num_documents=256, document_length=10240, chunk_length=64)
BERT: dict[str, Any] = dict(
  num_layers=2,
  width=128,
  num_heads=4,
  ffn_width=512,
  max_positions=64,
  dropout_rate=0.0,
  init_stddev=0.05,  # BERT's 0.02 is for width 768; this is the same spread a layer at width 128
)

# Muon on 30% of positions: 0.71 of the operations of 1250 steps of AdamW on 15%, whose KL from G was no lower.
NUM_STEPS = 600
BATCH_SIZE = 32
WARMUP_STEPS = 50
# Steps of one call of the compiled program.
STEPS_PER_CALL = 50
CORRUPTION: dict[str, Any] = dict(mask_rate=0.3, mask_share=0.8, random_share=0.1)
# Settings of Muon.
OPTIMIZER: dict[str, Any] = dict(learning_rate=2e-3, muon_learning_rate=0.02, weight_decay=0.0, clip_norm=1.0)

# Measuring the distance from the ideal model: most inputs, and inputs computed at a time.
NUM_INPUTS = 512
INPUTS_AT_A_TIME = 64

# A downstream task: texts of so many tokens, and mu.
LENGTH = 33
NUM_TRAIN = 1500
NUM_TEST = 1000
TASK_WEIGHTS: dict[str, Any] = dict(num_classes=2, num_nonzero=6, with_replacement=False)
SCHEDULE: dict[str, Any] = dict(
  learning_rate=0.01, num_epochs=5, batch_size=8, warmup_steps=100, weight_decay=0.0, clip_norm=1.0
)
PROMPT_LENGTH = 20
# As in the paper: U[-0.5, 0.5].
PROMPT_SCALE = 0.5
