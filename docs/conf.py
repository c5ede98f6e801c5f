"""The site of docs/, which `.ci/docs` builds: API pages are made from docstrings."""

import importlib
import inspect
import pathlib
import re

import hmm_jax
from hmm_jax.distributions.hmm import HMM

# A line of docs/api: a module, with a link to its source, and public names of it.
_NAMES = re.compile(r'^- \[`([\w.]+)`\]\(\S+\)[^:\n]*: ((?:`\w+`(?:,\s+)?)+)$', re.MULTILINE)

project = html_title = 'hmm-jax'
html_theme = 'furo'
html_copy_source = html_show_sourcelink = html_show_copyright = False

extensions = ['myst_parser', 'sphinx.ext.autodoc', 'sphinx.ext.napoleon']

myst_heading_anchors = 3

autodoc_typehints = 'none'
autodoc_member_order = 'bysource'
napoleon_use_ivar = True
# A name in single backticks is a link where the site has it.
default_role = 'py:obj'


def _leave_out_fields(app, kind, name, member, skip, options):
  """The docstring of a named tuple describes its fields."""
  return True if isinstance(member, type(HMM.initial_probs)) else None


def _escape(app, kind, name, member, options, lines):
  """Outside of examples and backticks docstrings are plain text: H*, |x| and `startprob_` are no markup."""
  in_example = False
  for number, line in enumerate(lines):
    in_example = line.lstrip().startswith('>>>') or (in_example and bool(line.strip()))
    if not in_example:
      parts = re.split(r'(`[^`]+`)', line)
      parts[::2] = [re.sub(r'[*|\\]|_\b', r'\\\g<0>', part) for part in parts[::2]]
      # What follows, as in `Fraction`s, would not end the markup.
      parts[2::2] = [r'\ ' * part[:1].isalnum() + part for part in parts[2::2]]
      lines[number] = ''.join(parts)


def public_names(page: str) -> list[tuple[str, str]]:
  """The modules and names that a page of docs/api lists."""
  return [(module, name) for module, names in _NAMES.findall(page) for name in re.findall(r'\w+', names)]


def _show_docstrings(app, page, source):
  """A code host lists names; the site shows their docstrings, and the legend of axes."""

  def documented(marked):
    lines = []
    for module, name in public_names(marked[0]):
      kind = 'class' if inspect.isclass(getattr(importlib.import_module(module), name)) else 'function'
      lines += [f'.. auto{kind}:: {module}.{name}', *['   :members:'] * (kind == 'class')]
    return '\n'.join(['```{eval-rst}', *lines, '```'])

  source[0] = _NAMES.sub(documented, source[0])
  if page == 'api/index':
    source[0] += '\n## Axes\n\n' + hmm_jax.__doc__.split('\n', 2)[2]


def _unlink_folders(app, page, source):
  """A code host lists a folder that a page links to; the site names it."""
  folder = (pathlib.Path(app.srcdir) / page).parent
  named = lambda link: link[1] if (folder / link[2]).is_dir() else link[0]
  source[0] = re.sub(r'\[([^]]*)\]\(([^)#:]+)\)', named, source[0])


def setup(app):
  app.connect('autodoc-skip-member', _leave_out_fields)
  app.connect('autodoc-process-docstring', _escape, priority=400)  # Before napoleon.
  app.connect('source-read', _show_docstrings)
  app.connect('source-read', _unlink_folders)
