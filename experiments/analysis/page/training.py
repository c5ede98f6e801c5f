"""The curves of pretraining, from the metrics beside the pretrained models."""

import contextlib
import itertools
import pathlib
from typing import Any

import matplotlib.figure
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.tables import places, select
from experiments.records import files, trials

_PANELS = {'mlm_loss': 'training loss (nats)', 'kl_at_mask': 'KL at the [MASK] (nats)'}
# More have no place in a legend.
_MOST_LINES = 20


@figures_lib.styled
def figures(records: pd.DataFrame, settings: Any, workdir: pathlib.Path) -> dict[str, matplotlib.figure.Figure]:
  """Loss and KL against the step, a line per distribution, the mean over its models; {} without metrics on file.

  Of very many distributions the first are shown.
  """
  metrics = _metrics(records, settings, workdir)
  if not metrics:
    return {}
  styles = figures_lib.cycle(metrics)
  figure, panels = figures_lib.panels(settings.figure, len(_PANELS), sharey=False)
  for axes, (field, label) in zip(panels, _PANELS.items()):
    for name, rows in metrics.items():
      values = rows.groupby('step')[field].mean()
      axes.plot(values, **styles(name))
    axes.set(xlabel='pretraining step', ylabel=label, ylim=(0, None))
  figures_lib.finish(figure, records, 'Distance from the ideal model during pretraining', 'mean over pretrained models')
  return {'training': figure}


def _metrics(records: pd.DataFrame, settings: Any, workdir: pathlib.Path) -> dict[str, pd.DataFrame]:
  """The metrics of each distribution by its label, if those of all models that the records name are intact."""
  if 'pretraining_id' not in records:
    return {}
  # An id in a record, which may come from anybody, must not choose a path.
  folders = files.entries(trials.pretrained_folder(settings, workdir))
  paths = {folder.name: folder / 'metrics.jsonl' for folder in folders}
  models = select(records, model='bert').drop_duplicates('pretraining_id')
  metrics: dict[str, pd.DataFrame] = {}
  for label, rows in itertools.islice(models.groupby(places(models), sort=False), _MOST_LINES):
    with contextlib.suppress(files.Corrupt, KeyError, TypeError, ValueError):
      of_models = [pd.DataFrame(files.read_json_lines(paths[name])) for name in rows['pretraining_id']]
      metrics[label] = pd.concat(of_models)[['step', *_PANELS]].astype(float)
  return metrics
