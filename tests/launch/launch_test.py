"""What is launched elsewhere: scripts that shellcheck passes, manifests that fit the published types and our flags."""

import functools
import os
import pathlib
import subprocess
import sys

import jsonschema
from kubeflow_trainer_api import models
import pytest
import yaml

from experiments import main as main_lib
from experiments.pipeline import sweep
from experiments.studies import registry
from experiments.studies.registry import EXPERIMENTS

ROOT = pathlib.Path(__file__).parents[2]
LAUNCH = ROOT / 'launch'
SCRIPTS = sorted([*LAUNCH.glob('*.sh'), *LAUNCH.glob('*.sbatch'), ROOT / '.ci' / 'run'])
# Of Kubernetes and of JobSet, as Kubeflow generates them from the OpenAPI of both.
TYPES = {
  'k8s_indexed_job.yaml': ('batch/v1', 'Job', models.IoK8sApiBatchV1Job),
  'gke_jobset.yaml': ('jobset.x-k8s.io/v1alpha2', 'JobSet', models.JobsetV1alpha2JobSet),
}
# These stand for a number or a text, and are written as either.
EITHER = ('IoK8sApimachineryPkgApiResourceQuantity', 'IoK8sApimachineryPkgUtilIntstrIntOrString')


@functools.cache
def _validator(name):
  """Raises jsonschema.ValidationError where a field is unknown, missing or of another type."""
  version, kind, model = TYPES[name]
  schema = model.model_json_schema(by_alias=True)
  schema['$defs'] |= dict.fromkeys(EITHER, {'type': ['number', 'string']})
  for definition in (schema, *schema['$defs'].values()):
    if 'properties' in definition:
      definition['additionalProperties'] = False
  schema['properties'] |= {'apiVersion': {'const': version}, 'kind': {'const': kind}}
  return jsonschema.Draft202012Validator(schema | {'required': ['apiVersion', 'kind', 'metadata', 'spec']})


def _manifest(name):
  return yaml.safe_load((LAUNCH / name).read_text())


def _job(manifest):
  """The specification of its job, of which a JobSet has one."""
  spec = manifest['spec']
  return spec['replicatedJobs'][0]['template']['spec'] if 'replicatedJobs' in spec else spec


def _pod(manifest):
  return _job(manifest)['template']['spec']


def _container(manifest):
  (container,) = _pod(manifest)['containers']
  return container


@pytest.mark.parametrize('script', SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script):
  """Nor is a script left that cannot be run."""
  done = subprocess.run([f'{sys.prefix}/bin/shellcheck', script], capture_output=True, text=True)
  assert done.returncode == 0, done.stdout
  assert os.access(script, os.X_OK)


@pytest.mark.parametrize('name', TYPES)
def test_a_manifest_is_what_its_type_takes(name):
  """Every field is one of Kubernetes or JobSet, and of its type."""
  _validator(name).validate(_manifest(name))


BROKEN = {
  'an unknown field of a container': lambda m: _container(m).update(arguments=['--help']),
  'a text for a number': lambda m: _job(m).update(parallelism='many'),
  'no template': lambda m: _job(m).pop('template'),
  'another version': lambda m: m.update(apiVersion='batch/v1beta1'),
}


@pytest.mark.parametrize('breaks', BROKEN.values(), ids=BROKEN)
def test_a_broken_manifest_is_seen(breaks):
  """So that the test above says something."""
  manifest = _manifest('gke_jobset.yaml')
  breaks(manifest)
  with pytest.raises(jsonschema.ValidationError):
    _validator('gke_jobset.yaml').validate(manifest)


def test_a_job_has_a_pod_for_each_trial(tmp_path):
  """As many completions as its config has trials; its last pod runs the last one, by flags that are taken."""
  manifest = _manifest('k8s_indexed_job.yaml')
  assert _job(manifest)['completionMode'] == 'Indexed' and _pod(manifest)['restartPolicy'] == 'Never'
  count = _job(manifest)['completions']
  numbers, grid = _chosen(manifest, JOB_COMPLETION_INDEX=str(count - 1))
  assert numbers == [len(grid) - 1] == [count - 1]


@pytest.mark.parametrize(('name', 'action'), [('k8s_indexed_job.yaml', 'FailIndex'), ('gke_jobset.yaml', 'FailJob')])
def test_what_is_refused_is_not_tried_again(name, action):
  """Exit code 2 ends the trial of a pod, or the whole JobSet; a preemption is no failure of a trial."""
  spec, job = _manifest(name)['spec'], _job(_manifest(name))
  *others, refused = job['podFailurePolicy']['rules']
  assert refused == {'action': action, 'onExitCodes': {'operator': 'In', 'values': [2]}}
  if action == 'FailIndex':
    assert job['backoffLimitPerIndex'] > 0 and [rule['action'] for rule in others] == ['Ignore']
  else:
    (rule,) = spec['failurePolicy']['rules']
    assert (rule['action'], rule['onJobFailureReasons']) == ('FailJobSet', ['PodFailurePolicy']) and not others


def test_a_jobset_has_a_slice_for_the_grid():
  """It names a queue, its hosts and their chips make up its topology, and it runs the whole grid."""
  manifest = _manifest('gke_jobset.yaml')
  assert 'kueue.x-k8s.io/queue-name' in manifest['metadata']['labels']
  job, selector = _job(manifest), _pod(manifest)['nodeSelector']
  height, width = map(int, selector['cloud.google.com/gke-tpu-topology'].split('x'))
  chips = int(_container(manifest)['resources']['limits']['google.com/tpu'])
  assert job['parallelism'] == job['completions'] == height * width / chips
  numbers, grid = _chosen(manifest)
  assert numbers == list(range(len(grid)))


def _chosen(manifest, **variables):
  """The numbers of the trials that a container runs, and their grid: its command line, read as the program does."""
  container = _container(manifest)
  assert container['command'] == ['python', '-m', 'experiments.main']
  arguments = list(container['args'])
  for name, value in variables.items():
    arguments = [argument.replace(f'$({name})', value) for argument in arguments]
  values, config = main_lib.parse(['main', *arguments])
  settings = registry.from_config(config)
  grid = EXPERIMENTS[settings.experiment].trials(settings, pathlib.Path(values.workdir))
  return sweep.chosen(values.trials, grid), grid
