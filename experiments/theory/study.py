"""The theory experiment: every part in turn, kept as it ends; then the tables and the figures, from records alone."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import pathlib
import time
from typing import Any

import jax

from experiments import figures, files, pretraining, results
from experiments.environment import environment
from experiments.progress import Reporter
from experiments.settings import digest
from experiments.theory import appendix, degradation, impossibility, prevalence, problems, report, verification
from experiments.theory.settings import TheorySettings
from hmm_jax.sharding import exact_device

Row = dict[str, Any]
Part = Callable[[TheorySettings, jax.Array, Reporter], list[Row]]


SETTINGS = TheorySettings


def check(settings: TheorySettings) -> None:
  """Raises SettingsError where this machine lacks what the settings ask for."""
  pretraining.check(settings.bert.model, 'bert.model')


def parts(settings: TheorySettings) -> dict[str, Part]:
  """The parts of the experiment, in order."""
  verify = lambda theorem: lambda settings, key, reporter: verification.verify(settings, theorem, key, reporter)
  return {
    **{f'verification-{theorem.name}': verify(theorem) for theorem in problems.THEOREMS},
    'impossibility': impossibility.run,
    'prevalence': prevalence.run,
    'degradation': degradation.run,
    'bert': degradation.run_bert,
    'appendix': appendix.run,
  }


def run(settings: TheorySettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Runs the parts that are missing; what an interrupted run finished is read back."""
  kept = workdir / 'parts' / _id(settings)
  key = jax.random.key(settings.seed)
  records: list[Row] = []
  environments: list[Row] = []
  for index, (name, part) in enumerate(parts(settings).items()):
    path, environment_path = kept / name / 'records.jsonl', kept / name / results.ENVIRONMENT_NAME
    if not path.exists():
      begun = time.monotonic()
      with _on_exact_device(), reporter.clock.phase(name):
        rows = part(settings, jax.random.fold_in(key, index), reporter)
      made = {'part': name, 'seconds': time.monotonic() - begun, **environment([exact_device()])}
      files.write_json_lines(environment_path, [made])
      files.write_json_lines(path, [{'schema_version': results.SCHEMA_VERSION, 'part': name, **row} for row in rows])
    records += files.read_json_lines(path)
    environments += files.read_json_lines(environment_path)
  results.write(workdir, settings, records, environments)


@contextlib.contextmanager
def _on_exact_device() -> Iterator[None]:
  """All but a small BERT is exact. In every thread, as `jax.default_device` would not be."""
  jax.config.update('jax_default_device', exact_device())
  try:
    yield
  finally:
    jax.config.update('jax_default_device', None)


def _id(settings: TheorySettings) -> str:
  """Names what is run by all that decides its records: not how it is drawn or where programs are kept."""
  fields = dataclasses.asdict(settings)
  del fields['compilation_cache'], fields['figure']
  return digest([fields])


def show(settings: TheorySettings, workdir: pathlib.Path, reporter: Reporter) -> None:
  """Prints the tables of the records and draws their figures."""
  records = results.load(workdir)
  made = files.read_json_lines(workdir / results.ENVIRONMENT_NAME)
  seconds = {row['part']: row['seconds'] for row in made}
  report.show(report.of_study(records, seconds, settings.margin), workdir, reporter)
  for name, draw in report.FIGURES.items():
    reporter.say(figures.saved(draw(records, settings.figure), workdir / name))
