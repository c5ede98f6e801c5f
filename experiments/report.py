"""The table that ends a run, made from records alone."""

import io
import json
import pathlib

import numpy as np
import rich.box
import rich.console
import rich.table

from experiments import results
from experiments.results import Record

REFERENCE = json.loads((pathlib.Path(__file__).parent / 'figure_3_reference.json').read_text())

_LABELS = {'bert': 'BERT', 'exact': 'exact G'}


def paper_values(method: str) -> dict[int, float]:
  """Accuracy in percent by number of states, as digitised from Figure 3 (left) of the later text."""
  left = REFERENCE['left_later_version']
  return dict(zip(left['num_states'], left[method]['mean'])) if method in left else {}


def table(records: list[Record], paper_overlay: bool) -> rich.table.Table:
  """One row a size: accuracies in percent with 95% intervals, the paired gain of the prompt, and the Bayes gap."""
  title = 'Test accuracy in percent, mean ± half-width of the 95% interval'
  out = rich.table.Table(title=title, box=rich.box.SIMPLE)
  out.add_column('|H|', justify='right', no_wrap=True)
  out.add_column('n', justify='right', no_wrap=True)
  columns = sorted({(record['model'], record['method']) for record in records})
  for model, method in columns:
    out.add_column(f'{method}\n{_LABELS[model]}', justify='right', no_wrap=True)
  has_both = {('bert', 'head'), ('bert', 'prompt')} <= set(columns)
  if has_both:
    out.add_column('prompt - head\nBERT', justify='right', no_wrap=True)
    out.add_column('p', justify='right', no_wrap=True)
  out.add_column('majority', justify='right', no_wrap=True)
  out.add_column('KL at\n[MASK]', justify='right', no_wrap=True)
  out.add_column('excess\nMLM loss', justify='right', no_wrap=True)
  if paper_overlay:
    out.add_column("paper's\nhead / prompt", justify='right', no_wrap=True)
  for num_states in sorted({record['num_states'] for record in records}):
    out.add_row(*_row(results.select(records, num_states=num_states), columns, has_both, paper_overlay))
  return out


def _row(records: list[Record], columns: list[tuple[str, str]], has_both: bool, paper_overlay: bool) -> list[str]:
  num_states = records[0]['num_states']
  majority = results.percent(records, 'majority_accuracy')
  cells = [str(num_states), str(len(majority.values))]
  for model, method in columns:
    chosen = results.select(records, model=model, method=method)
    cells.append(str(results.percent(chosen, 'accuracy')) if chosen else '')
  bert = results.select(records, model='bert')
  if has_both:
    head, prompt = (results.select(bert, method=method) for method in ('head', 'prompt'))
    paired = results.paired_difference(prompt, head)
    cells += [str(paired.interval), '' if np.isnan(paired.p_value) else f'{paired.p_value:.2g}']
  cells.append(str(majority))
  for field in ('kl_at_mask', 'excess_mlm_loss'):
    cells.append(f'{np.mean([record[field] for record in bert]):.3f}' if bert else '')
  if paper_overlay:
    values = [paper_values(method).get(num_states) for method in ('head', 'prompt')]
    cells.append(' / '.join('-' if value is None else f'{value}' for value in values))
  return cells


def render(records: list[Record], paper_overlay: bool) -> str:
  """`table` as plain text."""
  return as_text(table(records, paper_overlay))


def as_text(rich_table: rich.table.Table) -> str:
  """A table at its own width, without colour or trailing blanks."""
  console = rich.console.Console(width=240, no_color=True, file=io.StringIO(), record=True)
  console.print(rich_table)
  return '\n'.join(line.rstrip() for line in console.export_text().splitlines()) + '\n'
