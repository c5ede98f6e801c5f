"""Errors that the tests must notice: each is one wrong line of the suite, and the tests that speak of it.

Run by hand: `python tests/mutants.py` runs all, `python tests/mutants.py tuning trial` those of the files or folders of
these names. Each is made in a copy of the tree. Exit code 1 if a mutant survives, or its old text is not in the file
exactly once.
"""

from collections.abc import Iterator, Sequence
import contextlib
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

from mutant import Mutant
from mutants_of_experiments import EXPERIMENTS
from mutants_of_inference import INFERENCE
from mutants_of_learning import LEARNING
from mutants_of_theory import THEORY

ROOT = pathlib.Path(__file__).resolve().parents[1]
# By the file that is wrong: the name of an error, old text and new text, a file of tests, and which of them.
MUTANTS = [
  Mutant(name, path, old, new, (f'tests/{file}_test.py', '-k', tests))
  for errors in (INFERENCE, LEARNING, THEORY, EXPERIMENTS)
  for path, rows in errors.items()
  for name, old, new, file, tests in rows
]
# Seconds on the clock, which a busy machine may need for the tests of one file.
_HANGS = 1200


def verdict(mutant: Mutant) -> str:
  """'killed' where a test fails, 'SURVIVED' where all pass, else what is wrong with the mutant itself."""
  try:
    mutated = mutant.applied_to((ROOT / mutant.path).read_text())
  except (OSError, ValueError) as error:
    return f'NOT MADE: {error}'
  with mutated_tree(mutant.path, mutated) as tree:
    return tried(tree, mutant.tests)


@contextlib.contextmanager
def mutated_tree(path: str, text: str) -> Iterator[pathlib.Path]:
  """A copy of the tree in which one file has another text."""
  with tempfile.TemporaryDirectory() as folder:
    tree = pathlib.Path(folder) / 'tree'
    # A virtual environment and the folders of runs are large, and no test reads them.
    ignored = shutil.ignore_patterns('.git', '__pycache__', '.*_cache', '.venv', 'runs')
    shutil.copytree(ROOT, tree, ignore=ignored)
    (tree / path).write_text(text)
    yield tree


def tried(tree: pathlib.Path, tests: Sequence[str]) -> str:
  """'killed' and by which test, 'SURVIVED', or why the tests have not run, in a copy of the tree."""
  # Mutants share what they compile: most programs of one are those of another.
  shared = {
    'JAX_COMPILATION_CACHE_DIR': str(ROOT / '.pytest_cache' / 'd' / 'jax'),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
  }
  settings = {'PYTHONPATH': str(tree), 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1', **shared}
  command = [sys.executable, '-m', 'pytest', '-x', '-p', 'no:cacheprovider', '-m', '', *tests]
  how = dict(cwd=tree, env={**os.environ, **settings}, capture_output=True, text=True, timeout=_HANGS)
  try:
    done = subprocess.run(command, **how)
  except subprocess.TimeoutExpired:
    return f'killed by {tests[0]}, which hangs'
  # Pytest's 1 is a failed test; others are errors of its own, such as 5, no test.
  failed = [line for line in done.stdout.splitlines() if line.startswith(('FAILED', 'ERROR'))]
  if done.returncode == 1 and failed:
    return f'killed by {failed[0].split("::")[-1].split(" - ")[0]}'
  return 'SURVIVED' if done.returncode == 0 else f'NOT RUN: pytest ended with {done.returncode}'


def main(words: list[str]) -> int:
  """Print a line per mutant; return the exit code."""
  unknown = [word for word in words if not any(mutant.is_of(word) for mutant in MUTANTS)]
  if unknown:
    print(f'no mutants of {", ".join(unknown)}', file=sys.stderr)
    return 2
  failures, seconds = 0, 0.0
  for mutant in MUTANTS:
    if words and not any(map(mutant.is_of, words)):
      continue
    answer = verdict(mutant)
    failures += not answer.startswith('killed')
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, before = used.ru_utime + used.ru_stime, seconds
    print(f'{mutant.path}: {mutant.name}: {answer} ({seconds - before:.0f} CPU s)', flush=True)
  return int(failures > 0)


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
