"""Tables in plain text."""

from experiments.analysis.tables import as_text, table


def test_a_table_shows_its_cells():
  """Words that look like truth values, numbers or nothing stay what they are; long ones are folded."""
  words = 'False', 'True', 'None', '1e3', '007', 'word ' * 12
  shown = as_text(table('title', [{'name': 'a', 'holds': word, 'value': '-0'} for word in words], num_texts=2))
  rows = [line.split() for line in shown.splitlines()[4:]]
  assert rows == [*(['a', word, '-0'] for word in words[:5]), ['a', *['word'] * 8, '-0'], ['word'] * 4]
