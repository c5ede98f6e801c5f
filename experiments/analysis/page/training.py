"""The curves of pretraining, from the metrics beside the pretrained models."""

from collections.abc import Iterator
import contextlib
import pathlib
from typing import Any

import matplotlib
import matplotlib.figure
import pandas as pd

from experiments.analysis import figures as figures_lib
from experiments.analysis.statistics import interval
from experiments.analysis.tables import by_place, select
from experiments.records import files, trials

_PANELS = {'mlm_loss': 'training loss (nats)', 'kl_at_mask': 'KL at the [MASK] (nats)'}


@figures_lib.styled
def figures(records: pd.DataFrame, settings: Any, workdir: pathlib.Path) -> dict[str, matplotlib.figure.Figure]:
  """Loss and KL against the step, a line per distribution, the mean over its models; {} without metrics on file."""
  found = list(_metrics(records, settings, workdir)) if 'pretraining_id' in records else []
  if not found:
    return {}
  figure, panels = figures_lib.panels(settings.figure, 2, sharey=False)
  for axes, (field, label) in zip(panels, _PANELS.items()):
    lines = pd.concat(found).groupby('line', sort=False)
    for (name, rows), style in zip(lines, matplotlib.rcParams['axes.prop_cycle']()):
      figures_lib.draw_line(axes, rows.set_index('step')[field], interval, 0, label=str(name), **style)
    axes.set(xlabel='pretraining step', ylabel=label, ylim=(0, None))
  figures_lib.finish(figure, records, 'Distance from the ideal model during pretraining', 'mean over pretrained models')
  return {'training': figure}


def _metrics(records: pd.DataFrame, settings: Any, workdir: pathlib.Path) -> Iterator[pd.DataFrame]:
  """The metrics of each pretrained model that the records name and the folder has intact."""
  # An id in a record, which may come from anybody, must not choose a path.
  folders = files.entries(trials.pretrained_folder(settings, workdir))
  paths = {path.name: path / 'metrics.jsonl' for path in folders}
  of_bert = select(records, model='bert').drop_duplicates('pretraining_id')
  for line, rows in by_place(of_bert):
    for name in rows['pretraining_id']:
      with contextlib.suppress(files.Corrupt, KeyError, TypeError, ValueError):
        metrics = pd.DataFrame(files.read_json_lines(paths[name]))
        yield metrics[['step', *_PANELS]].astype(float).assign(line=line)
