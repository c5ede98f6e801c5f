"""The JSON schemas of docs/schemas/: each record in docs/results is of one kind, and every field is documented."""

import itertools
import json

import jsonschema
import pytest
from schema_cases import kinds_of, ROOT, SCHEMAS, VALIDATORS


@pytest.fixture(scope='module')
def samples():
  """Two records in docs/results of each part with each set of fields, by the kinds that they are of."""
  found = {}
  for path in sorted((ROOT / 'docs' / 'results').rglob('results.jsonl')):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    groups = lambda record: (record.get('part', ''), sorted(record))
    for _, group in itertools.groupby(sorted(records, key=groups), groups):
      for record in itertools.islice(group, 2):
        found.setdefault(tuple(kinds_of(record)), []).append(record)
  return found


def test_every_record_is_of_one_kind(samples):
  """And there are records of every kind, environments among them."""
  paths = (ROOT / 'docs' / 'results').rglob('environments/*.json')
  made = {tuple(kinds_of(json.loads(path.read_text()))) for path in paths}
  examined = {(kind,) for kind in VALIDATORS if kind.startswith('examine')}
  assert made == {('environment',)} and {*samples} == {(kind,) for kind in VALIDATORS} - made - examined


def test_a_field_more_or_less_or_of_another_type_is_refused(samples):
  for (kind,), (record, *_) in samples.items():
    wrong = [record | {'another': 1}]
    for field in record:
      wrong += [{name: value for name, value in record.items() if name != field}, record | {field: {'no': ['value']}}]
    assert len(wrong) > 10 and not any(map(VALIDATORS[kind].is_valid, wrong)), kind


@pytest.mark.parametrize('kind', SCHEMAS)
def test_every_field_is_documented_and_typed(kind):
  """The schema itself is one."""
  jsonschema.Draft202012Validator.check_schema(SCHEMAS[kind])
  for field, says in SCHEMAS[kind]['properties'].items():
    assert len(says['description']) > 1 and 'type' in says, field
