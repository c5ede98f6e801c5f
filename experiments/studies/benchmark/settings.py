"""The settings of the benchmark."""

from experiments.settings.fields import Group, require, setting
from experiments.settings.groups import BertSettings, CorpusSettings, Experiment, PretrainSettings


class InferenceSettings(Group):
  num_states: tuple[int, ...] = setting('numbers of hidden states |H| of the smoothed HMMs')
  num_tokens: int = setting('vocabulary size V', least=2, most=2**16)
  num_sequences: int = setting('sequences in a batch')
  length: int = setting('tokens in a sequence')
  memory_size: int = setting('number |M| of memory values', least=2)
  memory_states: int = setting('number of hidden states with the memory')


class SamplingSettings(Group):
  num_states: int = setting('number of hidden states |H|')
  num_tokens: int = setting('vocabulary size V; all samplers return bytes', least=2, most=254)
  num_documents: int = setting('number of documents sampled by every library')
  corpus_documents: int = setting('number of documents in a whole corpus')
  document_length: int = setting('tokens in a document')


class TrainingSettings(Group):
  """One step of pretraining, whose length is that of a chunk."""

  num_tokens: int = setting('vocabulary size V', least=2, most=2**16)
  bert: BertSettings
  pretrain: PretrainSettings
  corpus: CorpusSettings

  def check(self) -> None:
    # What Hugging Face's step takes too, and what the products are counted for.
    optimizer, dtype, scanned = self.pretrain.optimizer, self.bert.dtype, self.bert.scan_layers
    require(optimizer == 'adamw', 'pretrain.optimizer', optimizer, "'adamw', the optimiser of every library")
    require(dtype != 'float16', 'bert.dtype', dtype, "'float32' or 'bfloat16', which need no loss scaling")
    require(not scanned, 'bert.scan_layers', scanned, 'False: other libraries name each layer')


class BenchmarkSettings(Experiment):
  """The benchmark."""

  parts: tuple[str, ...] = setting('parts to measure', choices=('gpu', 'inference', 'sampling', 'training'))
  repeats: int = setting('measurements of each contender; the median counts')
  minutes: float = setting('minutes after which no further contender starts')
  inference: InferenceSettings
  sampling: SamplingSettings
  training: TrainingSettings
  gpu: TrainingSettings
