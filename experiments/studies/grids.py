"""The experiments of the paper's own protocol: grids of trials."""

from experiments.pipeline import sweep
from experiments.studies.study import Study

STUDY = Study(sweep.run, sweep.tables, sweep.figures, sweep.check)
