"""The study of the theorem behind Figure 3 (left)."""

from experiments.pipeline import pretraining
from experiments.studies.study import in_parts, Part, Study
from experiments.studies.which_theorem import certificate, grid, linearity, prompts
from experiments.studies.which_theorem.figures import figures
from experiments.studies.which_theorem.settings import WhichTheoremSettings
from experiments.studies.which_theorem.tables import tables


def _parts(settings: WhichTheoremSettings) -> dict[str, Part]:
  return {
    'linearity': grid.task_part(linearity.rows_of),
    'prompts': grid.task_part(prompts.rows_of),
    'kl': certificate.run,
  }


def _check(settings: WhichTheoremSettings) -> None:
  """Raise SettingsError where this machine lacks what the settings ask for."""
  pretraining.check(settings.bert, 'bert')
  pretraining.check_mesh(settings)


STUDY = Study(in_parts(_parts), tables, figures, _check)
