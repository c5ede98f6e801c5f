"""The settings of the facts about the HMMs and tasks of Figure 3 (left)."""

from experiments.settings.fields import Group, require, setting
from experiments.settings.grid import Settings
from experiments.studies.theory.settings import LevelSettings


class CertificateSettings(Group):
  """Pretrainings along which a head that converged on the exact G is tested on BERT."""

  num_states: tuple[int, ...] = setting('hidden states |H| of the HMMs, each of the grid', most=4096)
  num_trials: int = setting('HMMs of each of these sizes, as far as the grid has them')
  checkpoints: tuple[int, ...] = setting('steps of pretraining at which the head is put to BERT', least=0)


class PromptSettings(Group):
  """Levels up to which numbers count as 0, and limits of the search for a prompt."""

  support_levels: tuple[float, ...] = setting('epsilons up to which a transition counts as 0', least=0, below=1)
  rank_level: float = setting('share of the largest singular value up to which one counts as 0', below=1)
  max_nodes: int = setting('nodes of the search for H* in Assumption 3.5')
  max_covers: int = setting('sets of states behind a prompt')
  max_boxes: int = setting('boxes of weights on all of them')


class WhichTheoremSettings(Settings):
  """The settings of prompt_vs_head, which decide all that is drawn, and those of the study."""

  levels: LevelSettings
  margin: float = setting('most margin of a linear head that counts as none, and most residual of a proof of none')
  near_tie: float = setting('inputs whose class scores differ by less are near ties')
  prompts: PromptSettings
  certificate: CertificateSettings

  def check(self) -> None:
    super().check()
    first, c = self.downstream.label_state, self.certificate
    require(first == 'first', 'downstream.label_state', first, "'first', which the score is shown linear or not for")
    require(not self.distribution, 'distribution', self.distribution, "'': the HMMs are those of Figure 3 (left)")
    require(self.memory.sizes == (0,), 'memory.sizes', self.memory.sizes, '(0,): HMMs without a memory')
    valid = f'of num_states, {self.num_states}'
    require(set(c.num_states) <= set(self.num_states), 'certificate.num_states', c.num_states, valid)
    steps, each = c.checkpoints, self.pretrain.steps_per_call
    fits = tuple(sorted(steps)) == steps and steps[-1] <= self.pretrain.num_steps
    valid = f'ascending multiples of pretrain.steps_per_call, {each}, up to pretrain.num_steps'
    require(fits and not any(step % each for step in steps), 'certificate.checkpoints', steps, valid)
