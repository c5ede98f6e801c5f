"""The settings of the facts about the HMMs and tasks of Figure 3 (left)."""

from experiments.settings.fields import require, setting
from experiments.settings.grid import Settings
from experiments.studies.settings import require_drawn_hmms
from experiments.studies.theory.settings import LevelSettings


class WhichTheoremSettings(Settings):
  """The settings of prompt_vs_head, which decide all that is drawn, and those of the study."""

  levels: LevelSettings
  margin: float = setting('margins of a linear head, and residuals of a proof of none, up to this count as 0')
  near_tie: float = setting('inputs whose two best scores differ by less than this are near ties')

  def check_fields(self) -> None:
    super().check_fields()
    first = self.downstream.label_state
    require(first == 'first', 'downstream.label_state', first, "'first', the label whose linearity is decided")
    require_drawn_hmms(self)
