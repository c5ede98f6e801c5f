"""The JSON schemas of docs/schemas/, and of which kinds a record is by them."""

import json
import pathlib

import jsonschema
import referencing

from experiments.records import results

ROOT = pathlib.Path(__file__).parents[1]
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / 'docs' / 'schemas').glob('*.json'))}
_REGISTRY = referencing.Registry().with_resources(
  (f'{kind}.json', referencing.Resource.from_contents(schema)) for kind, schema in SCHEMAS.items()
)
# The fields of every record are part of each kind, and none by themselves.
VALIDATORS = {
  kind: jsonschema.Draft202012Validator(schema, registry=_REGISTRY)
  for kind, schema in SCHEMAS.items()
  if kind != 'common'
}


def kinds_of(record):
  """The kinds whose schema takes a record."""
  return [kind for kind, validator in VALIDATORS.items() if validator.is_valid(record)]


def kinds_in(workdir):
  """The kinds of the records of a workdir, each of which is of one kind."""
  found = [(kinds_of(record), record) for record in results.load(workdir)]
  assert [record for kinds, record in found if len(kinds) != 1] == []
  return {kind for (kind,), _ in found}
