"""python -m docs.fill [--check]: fill the outputs of docs/use/tutorials, and make notebooks of its scripts.

The Python blocks of a tutorial run one after another in a temporary folder; what a block prints comes behind it, and a
picture that the page shows is copied beside the page. A script NAME.py with cells becomes NAME.ipynb, executed. With
--check nothing is written, and the exit status is 1 if a page or a notebook is stale: a word or picture of a page
differs, or a number by more than 5% (0.05 if it is below 1).
"""

import contextlib
import io
import os
import pathlib
import re
import shutil
import sys
import tempfile

import jupytext
import matplotlib
from matplotlib.testing.compare import compare_images
import nbclient
import nbformat

DOCS = pathlib.Path(__file__).parent
_BLOCK = re.compile(r'^(```python\n(.*?)^```\n)(\n<!-- output -->\n.*?^<!-- end -->\n)?', re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r'(-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)')


def with_outputs(text: str) -> str:
  """The text of a page behind whose Python blocks stands what they print, run in the working directory."""
  names = {'__name__': '__main__'}

  def run(block):
    with contextlib.redirect_stdout(io.StringIO()) as out:
      exec(block[2], names)
    lines = '\n'.join(line.rstrip() for line in out.getvalue().strip('\n').split('\n'))
    return block[1] + (lines and f'\n<!-- output -->\n```text\n{lines}\n```\n<!-- end -->\n')

  return _BLOCK.sub(run, text)


def differ(old: str, new: str) -> bool:
  """True unless all words are the same and all numbers close."""
  (*old_words,), (*new_words,) = (_NUMBER.split(' '.join(text.split())) for text in (old, new))
  close = lambda a, b: abs(float(a) - float(b)) <= 0.05 * max(1, abs(float(a)))
  return old_words[::2] != new_words[::2] or not all(map(close, old_words[1::2], new_words[1::2]))


def notebook(script: pathlib.Path) -> nbformat.NotebookNode:
  """The notebook of a script, executed in a temporary folder; raises if a cell does."""
  made = jupytext.read(script)
  # The same script gives the same file.
  for number, cell in enumerate(made.cells):
    cell.id = f'cell-{number}'
  with tempfile.TemporaryDirectory() as folder:
    client = nbclient.NotebookClient(made, kernel_name='python3', record_timing=False, timeout=None)
    client.execute(cwd=folder)
  made.metadata = {'kernelspec': {'name': 'python3', 'display_name': 'Python 3', 'language': 'python'}}
  return made


def shown(made: nbformat.NotebookNode) -> str:
  """The texts of a notebook: its cells, and what they print."""
  texts = []
  for cell in made.cells:
    texts.append(cell.source)
    texts += [output.text for output in cell.get('outputs', []) if output.output_type == 'stream']
  return '\n'.join(texts)


def main(words: list[str]) -> int:
  """Fill the pages, or with --check name those that are stale; return the exit status."""
  if words not in ([], ['--check']):
    print(f'error: arguments {words}; valid is --check or nothing', file=sys.stderr)
    return 2
  # For the commands that a tutorial runs.
  os.environ['PYTHONPATH'] = str(DOCS.parent)
  matplotlib.use('agg')
  stale = []
  for page in DOCS.glob('use/tutorials/*.md'):
    old = page.read_text()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
      new = with_outputs(old)
      pictures = [name for name in re.findall(r'\]\(([^):]+\.png)\)', new) if pathlib.Path(name).is_file()]
      if words:
        stale += [page] * differ(old, new)
        stale += [page.parent / name for name in pictures if compare_images(page.parent / name, name, tol=10)]
        continue
      page.write_text(new)
      for name in pictures:
        (page.parent / name).parent.mkdir(exist_ok=True)
        shutil.copy(name, page.parent / name)
  for script in DOCS.glob('use/tutorials/*.py'):
    path, made = script.with_suffix('.ipynb'), notebook(script)
    if not words:
      nbformat.write(made, path)
    elif not path.exists() or differ(shown(nbformat.read(path, 4)), shown(made)):
      stale.append(path)
  if stale:
    print(f'error: stale: {", ".join(map(str, stale))}; python -m docs.fill makes them new', file=sys.stderr)
  return bool(stale)


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
