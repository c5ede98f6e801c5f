"""Errors that nobody chose: mutants by cosmic-ray, drawn by a seed, and the first test that fails on each.

    pip install cosmic-ray
    python tests/generated_mutants.py draw 80 0 > tests/generated_mutants.jsonl   # once, before tests are changed
    python -m pytest --junitxml=suite.xml
    python tests/generated_mutants.py run suite.xml verdicts.jsonl

A mutant is tried on the test files of its module, then on those of the modules that import it, the cheapest first,
until one fails or 60 CPU-seconds are spent. A run that is interrupted goes on where it was.
"""

import ast
import collections
import json
import pathlib
import random
import resource
import sys
import xml.etree.ElementTree

from mutants import mutated_tree, ROOT, tried

DRAWN = ROOT / 'tests' / 'generated_mutants.jsonl'
# The theorems and the exact recursion stand for the theory, which fractions and hand-written mutants hold.
FOLDERS = (
  'hmm_jax',
  'hmm_jax/theory/theorems',
  'hmm_jax/theory/exact',
  'experiments/analysis',
  'experiments/records',
  'experiments/pipeline',
)
CPU_SECONDS = 60


def draw(count, seed):
  """Prints mutants, one a line of code at most, each with its text before and after."""
  from cosmic_ray import mutating, plugins
  from cosmic_ray.ast import ast_nodes, get_ast

  found = []
  for folder in FOLDERS:
    for path in sorted((ROOT / folder).glob('*.py')):
      tree = get_ast(path.read_text())
      for name in sorted(plugins.operator_names()):
        operator = plugins.get_operator(name)
        if operator.arguments():
          continue
        positions = [where for node in ast_nodes(tree) for where in operator().mutation_positions(node)]
        found += [(str(path.relative_to(ROOT)), name, n, start[0]) for n, (start, _) in enumerate(positions)]
  random.Random(seed).shuffle(found)
  lines = set()

  def code(text):
    """What Python runs of a text: its tree without annotations."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
      for name in {'annotation', 'returns'} & set(node._fields):
        setattr(node, name, ast.Name('x', ast.Load()))
    return ast.dump(tree)

  for path, name, occurrence, line in found:
    if (path, line) in lines:
      continue
    text = (ROOT / path).read_text()
    mutated = mutating.mutate_code(text, plugins.get_operator(name)(), occurrence) or text
    before, after = text.splitlines(), mutated.splitlines()
    changed = [index for index, pair in enumerate(zip(before, after)) if pair[0] != pair[1]]
    try:
      same = code(text) == code(mutated)
    except SyntaxError:
      continue
    if same or len(before) != len(after) or len(changed) != 1:
      continue
    lines.add((path, line))
    print(json.dumps({'path': path, 'before': before[changed[0]], 'after': after[changed[0]], 'line': changed[0] + 1}))
    if len(lines) == count:
      return


def imports(path):
  """The modules of ours that a file imports, by path."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text())):
    names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
      names = [node.module, *(f'{node.module}.{one.name}' for one in node.names)]
    for name in names:
      file = ROOT / (name or '').replace('.', '/')
      found |= {str(one.relative_to(ROOT)) for one in (file.with_suffix('.py'), file / '__init__.py') if one.is_file()}
  return found


def files_that_test(path, seconds):
  """The test files of a module and of the modules that import it, the cheapest first."""
  code = {str(one.relative_to(ROOT)) for top in ('hmm_jax', 'experiments') for one in (ROOT / top).rglob('*.py')}
  importing = {path} | {one for one in code if path in imports(ROOT / one)}
  tests = [one for one in seconds if imports(ROOT / one) & importing]
  return sorted(tests, key=lambda one: (path not in imports(ROOT / one), seconds[one]))


def verdict(mutant, seconds):
  """The test that kills a mutant, or 'SURVIVED'; what is wrong with the mutant where it cannot be made."""
  lines = (ROOT / mutant['path']).read_text().split('\n')
  # The one of these lines that is nearest to where it was.
  places = [index for index, line in enumerate(lines) if line == mutant['before']]
  if not places:
    return 'NOT MADE: the line is gone'
  lines[min(places, key=lambda index: abs(index + 1 - mutant['line']))] = mutant['after']
  begun = _cpu_seconds()
  with mutated_tree(mutant['path'], '\n'.join(lines)) as tree:
    for test in files_that_test(mutant['path'], seconds):
      found = tried(tree, [test])
      if found != 'SURVIVED':
        return f'{found} of {test}'
      if _cpu_seconds() - begun > CPU_SECONDS:
        return f'SURVIVED {CPU_SECONDS} CPU-seconds'
  return 'SURVIVED'


def _cpu_seconds():
  """Of the processes that have ended."""
  spent = resource.getrusage(resource.RUSAGE_CHILDREN)
  return spent.ru_utime + spent.ru_stime


def run(suite, out):
  """Appends the verdict on each mutant that has none."""
  seconds = collections.defaultdict(float)
  for case in xml.etree.ElementTree.parse(suite).iter('testcase'):
    seconds[case.get('classname').replace('.', '/') + '.py'] += float(case.get('time'))
  seconds = {path: spent for path, spent in seconds.items() if (ROOT / path).is_file()}
  done = {json.loads(line)['number'] for line in out.read_text().splitlines()} if out.exists() else set()
  for number, line in enumerate(DRAWN.read_text().splitlines()):
    if number not in done:
      found = {'number': number, **json.loads(line), 'verdict': verdict(json.loads(line), seconds)}
      with out.open('a') as file:
        file.write(json.dumps(found) + '\n')
      print(number, found['path'], found['line'], found['verdict'], flush=True)


if __name__ == '__main__':
  if sys.argv[1] == 'draw':
    draw(int(sys.argv[2]), int(sys.argv[3]))
  else:
    run(sys.argv[2], pathlib.Path(sys.argv[3]))
