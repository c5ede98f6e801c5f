"""Each record in docs/results is of one kind that has a JSON schema with every field of it, but for frozen folders."""

import json

import pytest
from schema_cases import kinds_of

from experiments.studies import pages


@pytest.fixture(scope='module')
def found():
  """A record of each set of fields that there is, by the kinds that it is of."""
  paths = [folder / 'results.jsonl' for folder in pages.folders()]
  records = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
  distinct = {(record.get('part'), *sorted(record)): record for record in records}
  return {kinds_of(record): record for record in distinct.values()}


def test_every_record_is_of_one_kind(found):
  """And an environment is of its own kind."""
  assert found and all(len(kinds) == 1 for kinds in found)
  for path in pages.RESULTS.rglob('environments/*.json'):
    assert kinds_of(json.loads(path.read_text())) == ('environment',)


def test_a_field_more_or_less_or_of_another_type_is_refused(found):
  for record in found.values():
    assert kinds_of(record | {'another': 1}) == ()
    for field in record:
      assert kinds_of(record | {field: {'no': ['value']}}) == ()
      # Without a process of its own a record would be that of a draw; records may differ in any setting, or in none.
      assert (
        field == 'distribution'
        or '.' in field
        or kinds_of({name: record[name] for name in record if name != field}) == ()
      )
