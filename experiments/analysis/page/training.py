"""The curves of pretraining, from the metrics beside the pretrained models."""

from collections.abc import Iterator
import contextlib
import itertools
import pathlib

import matplotlib
import matplotlib.figure
import pandas as pd

from experiments.analysis import figures, statistics
from experiments.records import files
from experiments.settings import lists
from experiments.settings.groups import FigureSettings

_PANELS = {'mlm_loss': 'masked-LM loss (nats)', 'kl_at_mask': 'KL at the [MASK] (nats)'}


@figures.styled
def figure(records: pd.DataFrame, folder: pathlib.Path, settings: FigureSettings) -> matplotlib.figure.Figure | None:
  """Loss and KL against the step, a line per distribution, the mean over its models; None without metrics."""
  if 'pretraining_id' not in records or not (found := list(_metrics(records, folder))):
    return None
  metrics = pd.concat(found)
  drawn = matplotlib.figure.Figure((1.5 * settings.width, settings.height), settings.dpi)
  for axes, (field, label) in zip(drawn.subplots(1, 2), _PANELS.items()):
    styles = itertools.cycle(matplotlib.rcParams['axes.prop_cycle'])
    for name, rows in metrics.groupby('line', sort=False):
      samples = {float(step): values.to_numpy() for step, values in rows.groupby('step')[field]}
      figures.draw_line(axes, samples, str(name), next(styles), interval=statistics.mean_interval)
    axes.set(xlabel='pretraining step', ylabel=label, ylim=(0, None))
  figures.finish(drawn, records, 'mean over pretrained models')
  return drawn


def _metrics(records: pd.DataFrame, folder: pathlib.Path) -> Iterator[pd.DataFrame]:
  """The metrics of each pretrained model that the records name and the folder has intact."""
  # An id in a record, which may come from anybody, must not choose a path.
  by_id = {path.name: path for path in files.entries(folder)}
  for place, rows in statistics.by_place(records.drop_duplicates('pretraining_id')).items():
    line = ' '.join(filter(None, [str(place.point), lists.text(dict(place.values))]))
    for path in (by_id[name] for name in rows['pretraining_id'] if name in by_id):
      with contextlib.suppress(files.Corrupt, KeyError, TypeError, ValueError):
        metrics = pd.DataFrame(files.read_json_lines(path / 'metrics.jsonl'))
        yield metrics[['step', *_PANELS]].astype(float).assign(line=line)
