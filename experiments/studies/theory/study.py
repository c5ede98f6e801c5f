"""The theory experiment: theorems verified, linear heads certified, assumptions counted."""

import functools

from experiments.studies.study import in_parts, Part, Study
from experiments.studies.theory import impossibility, prevalence, verification
from experiments.studies.theory.settings import TheorySettings
from experiments.studies.theory.summaries import tables
from experiments.studies.theory.verification import THEOREMS


def parts(settings: TheorySettings) -> dict[str, Part]:
  """The parts of the experiment, in order."""
  verified = {f'verification-{theorem.name}': functools.partial(verification.verify, theorem) for theorem in THEOREMS}
  return {**verified, 'impossibility': impossibility.run, 'prevalence': prevalence.run}


STUDY = Study(in_parts(parts), tables)
