"""The public names of the package, which `lazy_loader` imports at their first use, and its submodules."""

from . import (
  arguments as arguments,
  batching as batching,
  bayes_gap as bayes_gap,
  bert as bert,
  blocks as blocks,
  compilation as compilation,
  converged as converged,
  defaults as defaults,
  display as display,
  distribution_files as distribution_files,
  example_4_1 as example_4_1,
  float64 as float64,
  heads as heads,
  hmm as hmm,
  inference as inference,
  masking as masking,
  memory_hmm as memory_hmm,
  messages as messages,
  model as model,
  nan_guard as nan_guard,
  optimizer as optimizer,
  passes as passes,
  pretraining as pretraining,
  processes as processes,
  sampling as sampling,
  sharding as sharding,
  tasks as tasks,
  theory as theory,
  token_readers as token_readers,
  tuning as tuning,
  viterbi as viterbi,
  workflow as workflow,
)
from .bert import Bert as Bert, BertModel as BertModel
from .heads import Attention as Attention, Linear as Linear
from .hmm import (
  conditional_token_probs as conditional_token_probs,
  evidence_likelihoods as evidence_likelihoods,
  from_dynamax as from_dynamax,
  from_hmmlearn as from_hmmlearn,
  HMM as HMM,
  random_hmm as random_hmm,
  to_dynamax as to_dynamax,
  to_hmmlearn as to_hmmlearn,
  token_likelihoods as token_likelihoods,
)
from .inference import (
  forward_backward as forward_backward,
  last_filtered_probs as last_filtered_probs,
  Posterior as Posterior,
)
from .memory_hmm import (
  cell_posterior as cell_posterior,
  independent_cells as independent_cells,
  memory_forward_backward as memory_forward_backward,
  MemoryHMM as MemoryHMM,
  MemoryPosterior as MemoryPosterior,
  random_memory_hmm as random_memory_hmm,
  to_hmm as to_hmm,
)
from .model import (
  at_positions as at_positions,
  ExactModel as ExactModel,
  MaskedLM as MaskedLM,
  PromptSpace as PromptSpace,
  token_probs as token_probs,
)
from .sampling import sample as sample, sample_corpus as sample_corpus
from .tuning import Schedule as Schedule
from .viterbi import most_likely_states as most_likely_states
from .workflow import (
  DownstreamTask as DownstreamTask,
  draw_task as draw_task,
  pretrain as pretrain,
  tune as tune,
  Tuned as Tuned,
)

__version__: str
