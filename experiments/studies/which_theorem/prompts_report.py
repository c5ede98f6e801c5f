"""How often a prompt of the exact model is right on a task: the table by |H|, and sentences, from records alone."""

import itertools

from experiments.analysis import report
from experiments.records.results import Record
from experiments.studies.theory.tables import Table
from experiments.studies.which_theorem.report import by_size, hmms, part_records, percent

# The error of a solution, of weights of at most 1, up to which float64 has it.
PRECISE = 1e-6
# Outcomes of the two searches, and the words for them.
DECISIONS = ('yes', 'no', 'undecided')
PROOFS = ('certified', 'open', 'undecided')


def prompt_table(records: list[Record]) -> Table | None:
  """By |H| and epsilon: Assumption 3.5, the condition, and the accuracy of what was built."""
  chosen, rows = part_records(records, 'prompts'), list[list[str]]()
  for (size, of_size), level in itertools.product(by_size(chosen).items(), _levels(chosen)):
    outcomes = [record['constant_prompt'][level] for record in of_size]
    built = [{**r, 'right': r['accuracy'][level]} for r in of_size if r['accuracy'][level] is not None]
    row = [str(size), str(len(hmms(of_size))), str(len(of_size)), f'{float(level):g}']
    row += map(str, [sum(record['3.5'][level] for record in of_size), *map(outcomes.count, DECISIONS)])
    row.append(str(sum(record['error'][level] <= PRECISE for record in built)))
    shares = percent(built, lambda r: r['right']), percent(built, lambda r: r['majority_accuracy'])
    rows.append(row + [str(share) if built else '' for share in shares])
  columns = ['|H|', 'HMMs', 'tasks', 'epsilon', '3.5', *DECISIONS, f'yes to {PRECISE:g}', 'built: accuracy, %']
  title = 'Tasks by whether one prompt row with a linear head solves (W^T b) * (A w) = c v; means ± 95% over HMMs'
  return Table(title, [*columns, 'majority class, %'], rows, 0) if rows else None


def proof_table(records: list[Record]) -> Table | None:
  """By |H|: what is proven of all prompts."""
  rows = list[list[str]]()
  for size, of_size in by_size(part_records(records, 'prompts')).items():
    outcomes = [record['no_prompt'] for record in of_size]
    rows.append([str(size), str(len(of_size)), *(str(outcomes.count(outcome)) for outcome in PROOFS)])
  columns = ['|H|', 'tasks', 'no prompt is right', 'no such proof', 'undecided']
  title = 'Tasks by whether it is proven that no prompt of any length with a linear head is right on all test inputs'
  return Table(title, columns, rows, 0) if rows else None


def render(records: list[Record]) -> str:
  """Both tables, as plain text."""
  return '\n'.join(report.as_text(table.rich()) for table in _tables(records))


def section(records: list[Record]) -> str:
  """Markdown: sentences and tables, every number from the records of the part `prompts`; a line without any."""
  told = [_sentences(part_records(records, 'prompts'))] if part_records(records, 'prompts') else ['No records yet.']
  return '\n\n'.join([*told, *(table.markdown() for table in _tables(records))])


def _tables(records: list[Record]) -> list[Table]:
  return [table for make in (prompt_table, proof_table) if (table := make(records))]


def _sentences(records: list[Record]) -> str:
  lines = []
  for level in _levels(records):
    solved = {size: [r['constant_prompt'][level] == 'yes' for r in rows] for size, rows in by_size(records).items()}
    shares = ', '.join(f'{sum(flags)} of {len(flags)} at |H| = {size}' for size, flags in solved.items())
    transitions = (
      f'With transitions up to {float(level):g} taken for 0' if float(level) else 'With transitions as they are'
    )
    undecided = sum(record['constant_prompt'][level] == 'undecided' for record in records)
    precise = sum(record['constant_prompt'][level] == 'yes' and record['error'][level] <= PRECISE for record in records)
    lines.append(
      f'- {transitions}, the condition has a solution for {shares}, which float64 has to {PRECISE:g} in {precise} of '
      f'{sum(map(sum, solved.values()))}; Assumption 3.5 fails in '
      f'{sum(_is_beyond(record, level) for record in records)} of these tasks. {undecided} are undecided.'
    )
  outcomes = [record['no_prompt'] for record in records]
  lines.append(
    f'- That no prompt of any length with a linear head is right on all test inputs is proven for '
    f'{outcomes.count("certified")} of {len(records)} tasks. For {outcomes.count("open")} there is no such proof, '
    f'since a head is right behind some law of the masked state; {outcomes.count("undecided")} are undecided.'
  )
  return '\n'.join(lines)


def _is_beyond(record: Record, level: str) -> bool:
  return record['constant_prompt'][level] == 'yes' and not record['3.5'][level]


def _levels(records: list[Record]) -> list[str]:
  return list(records[0]['3.5']) if records else []
