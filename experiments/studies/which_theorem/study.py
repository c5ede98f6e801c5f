"""The study of the theorem behind Figure 3 (left)."""

from experiments.studies.study import in_parts, Part, Study
from experiments.studies.which_theorem import grid, linearity, prompts
from experiments.studies.which_theorem.figures import figures
from experiments.studies.which_theorem.settings import WhichTheoremSettings
from experiments.studies.which_theorem.tables import tables


def _parts(settings: WhichTheoremSettings) -> dict[str, Part]:
  del settings
  return {'linearity': grid.task_part(linearity.rows_of), 'prompts': grid.task_part(prompts.rows_of)}


STUDY = Study(in_parts(_parts), tables, figures)
