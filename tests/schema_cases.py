"""The JSON schemas of docs/schemas/records/, and of which kinds a record is by them."""

import json

from conftest import DOCS
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

SCHEMAS = {path.stem: json.loads(path.read_text()) for path in DOCS.glob('schemas/records/*.json')}
# The schema of what every record has is part of the others.
_REGISTRY = Registry().with_resource('common.json', Resource.from_contents(SCHEMAS.pop('common')))


def kinds_of(record):
  """The kinds whose schema takes a record."""
  return tuple(
    kind for kind, schema in SCHEMAS.items() if Draft202012Validator(schema, registry=_REGISTRY).is_valid(record)
  )
