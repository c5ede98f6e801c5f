"""Command lines that no field can refuse by itself: each is refused in one sentence, with status 2, and writes nothing.

tests/settings/fields_test.py has the values that a field refuses.
"""

_GRID = '--config=prompt_vs_head:smoke'
# Words after a valid config, then what is named: the flag or field and its value.
_AFTER_A_CONFIG = (
  ('--mode=replay', '--mode', 'replay'),
  ('--wordkir=x', 'wordkir', 'workdir'),
  ('stray', "'stray'"),
  ('--trials=2', '--trials', "'2'"),
  ('--mode=status --trials=0', '--trials', "'0'"),
  ('--mode=report --trials=0', '--trials', "'0'"),
  ('--config.num_statez=3', 'num_statez', 'num_states'),
  ('--help --config.num_statez=3', 'num_statez', 'num_states'),
  ('--config.seed=,', 'seed'),
  ('--config.time_budget=1e400', 'time_budget', 'inf', 'below 1e+18'),
  ('--config.bert.scan_layers=False', 'bert.scan_layers', "'False'", 'gone'),
  ('--config.num_states={[1]}', 'num_states', '{[1]}'),
  ("--config.plan={'a':{1:2}}", 'plan'),
  ('--trials=0-99999999999999', '--trials', '0-99999999999999'),
  ('--config.scale=paper', '--config.scale', 'NAME:SCALE'),
  # Not of the type of the field.
  ('--mode=report --config.seed=1.5', 'seed', '1.5'),
  ('--config.methods=head,promt', 'methods', "('head', 'promt')"),
  ('--config.hmm.emission_temperature=1e6 --config.models=exact', 'hmm', 'emission_temperature=1000000.0'),
  ('--noconfig.num_states --config.num_states=4', '--noconfig.num_states'),
  ('--config.models=own', 'model', "''"),
  ('--config.models=own --config.model=nowhere:build', 'nowhere:build', 'ModuleNotFoundError'),
  ('--config.mesh.data=64', 'mesh', '(64, 1)'),
  ('--config.distribution=mess4', 'distribution', 'mess4', 'mess3'),
  ('--config.corpus_file=tokens.txt', 'corpus_file', 'tokens.txt'),
  ('--workdir=/proc/nothing', '--workdir', '/proc/nothing'),
  ('--workdir=\udcff\udcfe', '--workdir'),
)
_WHOLE = (
  ('', '--config'),
  ('--config=promt_vs_head:smoke', '--config', 'promt_vs_head'),
  ('--conf=prompt_vs_head:smoke', '--conf=prompt_vs_head:smoke'),
  ('--config=benchmark:smoke --mode=status', '--mode', 'status'),
  ('--config=degradation:smoke --config.bert.width=16', 'bert.width', 'bert.model.width'),
  ('--config=degradation:smoke --config.bert.checkpoints=(20,0)', 'bert.checkpoints', '(20, 0)'),
  ('--mode=verify', '--workdir'),
  ('--mode=verify --workdir=none --config.seed=3', '--config', "''"),
  ('--mode=verify --workdir=none', '--workdir', 'none'),
)
# A mode, and a folder of records in which it does nothing.
_FOLDERS = (
  ('report', {'work/results.jsonl': b'{"schema_version": 2, "experiment": "prompt_vs_head"}'}),
  ('run', {'work/results.jsonl': b'{"schema_version": 2, "experiment": "benchmark"}'}),
  ('run', {'work': b'a file'}),
)
# In the even process a run of ones between zeros is even.
_EVEN = ('distribution=even', 'models=exact', 'corpus.chunk_length=4', 'pretrain.batch_size=1', 'corpus_file=c.txt')

# A line of a config file, then what is named.
_LINES = (
  ("config['experiment'] = {'a': 1}", 'experiment', "{'a': 1}", 'prompt_vs_head'),
  ("del config['scale']", 'scale', 'None'),
  ("config['seed'] = None", 'seed', 'None'),
  ("config['hmm'] = {}", 'hmm', '{}', 'hmm.num_tokens'),
  ("config['time_budget'] = 10**400", 'time_budget', '1000', 'float'),
  ("config['deterministic'] = True", 'deterministic', 'True', 'False'),
)


def _file(line):
  return f"""from configs.prompt_vs_head import *
def get_config():
  config = base.get_config().to_dict() | dict(experiment='prompt_vs_head')
  {line}
  return ml_collections.ConfigDict(config)
""".encode()


# A command line, what its sentence has to have, and the files that lie in the folder before.
BAD = [
  *(((_GRID, *words.split(' ')), says, {}) for words, *says in _AFTER_A_CONFIG),
  *((words.split(), says, {}) for words, *says in _WHOLE),
  (['--config=mine.py'], ['mine.py', 'KeyboardInterrupt'], {'mine.py': b'raise KeyboardInterrupt'}),
  *((['--config=mine.py'], says, {'mine.py': _file(line)}) for line, *says in _LINES),
  *(((_GRID, f'--mode={mode}', '--workdir=work'), ['work', 'valid'], files) for mode, files in _FOLDERS),
  ((_GRID, *(f'--config.{word}' for word in _EVEN)), ['document 2'], {'c.txt': b'0 1 1 0\n1 0 0 1\n0 1 0 0'}),
  ((_GRID, '--config.corpus_file=c.txt'), ['corpus_file', 'distribution'], {'c.txt': b'0 1'}),
  ((_GRID, '--config.distribution=hmm.json'), ['distribution'], {'hmm.json': b'[' * 100_000}),
]
