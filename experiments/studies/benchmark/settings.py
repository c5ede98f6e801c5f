"""The settings of the benchmark."""

from experiments.settings.fields import Group, require, setting
from experiments.settings.groups import BertSettings, CorpusSettings, Experiment, PretrainSettings


class InferenceSettings(Group):
  num_states: tuple[int, ...] = setting('hidden states |H| of the HMMs that are smoothed')
  num_tokens: int = setting('size V of the vocabulary', least=2, most=2**16)
  num_sequences: int = setting('sequences of a batch')
  length: int = setting('tokens of a sequence')
  memory_size: int = setting('values |M| of the memory', least=2)
  memory_states: int = setting('hidden states beside the memory')


class SamplingSettings(Group):
  num_states: int = setting('hidden states |H|')
  num_tokens: int = setting('size V of the vocabulary, bytes to every sampler', least=2, most=254)
  num_documents: int = setting('documents that are sampled beside every peer')
  corpus_documents: int = setting('documents of a whole corpus')
  document_length: int = setting('tokens of a document')


class TrainingSettings(Group):
  """One step of pretraining, whose length is that of a chunk."""

  num_tokens: int = setting('size V of the vocabulary', least=2, most=2**16)
  bert: BertSettings
  pretrain: PretrainSettings
  corpus: CorpusSettings

  def check(self) -> None:
    # What Hugging Face's step takes too, and what the products are counted for.
    optimizer, dtype, scanned = self.pretrain.optimizer, self.bert.dtype, self.bert.scan_layers
    require(optimizer == 'adamw', 'pretrain.optimizer', optimizer, "'adamw', which every library takes")
    require(dtype != 'float16', 'bert.dtype', dtype, "'float32' or 'bfloat16', in which losses need no scale")
    require(not scanned, 'bert.scan_layers', scanned, 'False, since only single layers have names elsewhere')


class BenchmarkSettings(Experiment):
  """The benchmark."""

  parts: tuple[str, ...] = setting('what is measured', choices=('gpu', 'inference', 'sampling', 'training'))
  repeats: int = setting('measurements of each, of which the median counts')
  minutes: float = setting('no contender is compiled and measured that has not begun after so many')
  inference: InferenceSettings
  sampling: SamplingSettings
  training: TrainingSettings
  gpu: TrainingSettings
