"""The public names of the package, which `lazy_loader` imports at their first use, and its submodules."""

from . import (
  defaults as defaults,
  distributions as distributions,
  files as files,
  inference as inference,
  layers as layers,
  models as models,
  theory as theory,
  tuning as tuning,
  workflow as workflow,
)
from .distributions import processes as processes
from .distributions.hmm import (
  conditional_token_probs as conditional_token_probs,
  evidence_likelihoods as evidence_likelihoods,
  HMM as HMM,
  random_hmm as random_hmm,
  token_likelihoods as token_likelihoods,
)
from .distributions.interop import (
  from_dynamax as from_dynamax,
  from_hmmlearn as from_hmmlearn,
  to_dynamax as to_dynamax,
  to_hmmlearn as to_hmmlearn,
)
from .distributions.labelled import (
  beliefs as beliefs,
  from_transition_matrices as from_transition_matrices,
  Process as Process,
)
from .distributions.memory_hmm import (
  cell_posterior as cell_posterior,
  memory_forward_backward as memory_forward_backward,
  MemoryHMM as MemoryHMM,
  MemoryPosterior as MemoryPosterior,
  random_memory_hmm as random_memory_hmm,
  to_hmm as to_hmm,
)
from .distributions.mixed_states import (
  Entropies as Entropies,
  entropies as entropies,
  mixed_states as mixed_states,
  MixedStates as MixedStates,
)
from .distributions.sampling import sample as sample, sample_corpus as sample_corpus
from .files.models import load as load, save as save
from .inference.posterior import (
  forward_backward as forward_backward,
  last_filtered_probs as last_filtered_probs,
  Posterior as Posterior,
)
from .inference.viterbi import most_likely_states as most_likely_states
from .layers import plots as plots
from .layers.activations import (
  activations as activations,
  attention_patterns as attention_patterns,
  save_activations as save_activations,
  with_activations as with_activations,
)
from .layers.probes import probe as probe
from .models.bert import Bert as Bert, BertModel as BertModel
from .models.model import (
  at_positions as at_positions,
  ExactModel as ExactModel,
  MaskedLM as MaskedLM,
  PromptSpace as PromptSpace,
  token_probs as token_probs,
)
from .models.torch_model import from_torch as from_torch
from .tuning.heads import Attention as Attention, Linear as Linear
from .tuning.tuner import Schedule as Schedule
from .workflow import (
  DownstreamTask as DownstreamTask,
  draw_task as draw_task,
  load_tuned as load_tuned,
  pretrain as pretrain,
  Pretrained as Pretrained,
  tune as tune,
  Tuned as Tuned,
)

__version__: str
