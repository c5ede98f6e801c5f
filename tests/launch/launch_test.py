"""Launch files: scripts that shellcheck passes, manifests that fit the published types and our flags."""

import subprocess
import sys

from conftest import ROOT
import jsonschema
from kubeflow_trainer_api import models
import pytest
import yaml

from experiments.settings.config import load, parse
from experiments.settings.trial import trial_numbers, trials
from experiments.studies import registry

LAUNCH = ROOT / 'launch'
SCRIPTS = sorted([*LAUNCH.glob('*.sh'), *LAUNCH.glob('*.sbatch'), *(ROOT / '.ci').iterdir()])
# Types of Kubernetes and of JobSet, as Kubeflow generates them from the OpenAPI of both.
TYPES = {
  'k8s_indexed_job.yaml': ('batch/v1', 'Job', models.IoK8sApiBatchV1Job),
  'gke_jobset.yaml': ('jobset.x-k8s.io/v1alpha2', 'JobSet', models.JobsetV1alpha2JobSet),
}
# These stand for a number or a text, and are written as either.
EITHER = ('IoK8sApimachineryPkgApiResourceQuantity', 'IoK8sApimachineryPkgUtilIntstrIntOrString')


def _manifest(name):
  return yaml.safe_load((LAUNCH / name).read_text())


@pytest.mark.parametrize('script', SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script):
  done = subprocess.run([f'{sys.prefix}/bin/shellcheck', script], capture_output=True, text=True)
  assert done.returncode == 0, done.stdout


@pytest.mark.parametrize('name', TYPES)
def test_a_manifest_fits_its_published_type(name):
  """Every field is one of Kubernetes or JobSet, and of its type; none that is required is missing."""
  version, kind, model = TYPES[name]
  schema = model.model_json_schema(by_alias=True)
  schema['$defs'] |= dict.fromkeys(EITHER, {'type': ['number', 'string']})
  for definition in (schema, *schema['$defs'].values()):
    if 'properties' in definition:
      definition['additionalProperties'] = False
  schema['properties'] |= {'apiVersion': {'const': version}, 'kind': {'const': kind}}
  jsonschema.validate(_manifest(name), schema | {'required': ['apiVersion', 'kind', 'metadata', 'spec']})


def test_a_job_has_a_pod_for_each_trial():
  """As many completions as its config has trials; its last pod runs the last one, by flags that are taken."""
  manifest = _manifest('k8s_indexed_job.yaml')
  count = manifest['spec']['completions']
  numbers, num_trials = _chosen(manifest['spec'], str(count - 1))
  assert numbers == [num_trials - 1] == [count - 1]
  assert manifest['spec']['completionMode'] == 'Indexed'


def test_a_jobset_has_a_slice_for_the_grid():
  """Its hosts and their chips make up its topology, and it runs the whole grid."""
  (slice_,) = _manifest('gke_jobset.yaml')['spec']['replicatedJobs']
  job = slice_['template']['spec']
  pod = job['template']['spec']
  height, width = map(int, pod['nodeSelector']['cloud.google.com/gke-tpu-topology'].split('x'))
  chips = int(pod['containers'][0]['resources']['limits']['google.com/tpu'])
  assert job['parallelism'] == job['completions'] == height * width / chips
  numbers, num_trials = _chosen(job)
  assert numbers == list(range(num_trials))


def _chosen(job, index=''):
  """The numbers of the trials that a pod runs, and how many there are; its exit code 2 is not tried again."""
  *_, refused = job['podFailurePolicy']['rules']
  assert refused['action'] in ('FailIndex', 'FailJob') and refused['onExitCodes'] == {'operator': 'In', 'values': [2]}
  (container,) = job['template']['spec']['containers']
  assert container['command'] == ['python', '-m', 'experiments.main']
  arguments = [argument.replace('$(JOB_COMPLETION_INDEX)', index) for argument in container['args']]
  flags, texts = parse(['main', *arguments], ['run'])
  num_trials = len(trials(registry.from_record(load(flags.config, texts, registry.SETTINGS))))
  return trial_numbers(flags.trials, num_trials), num_trials
