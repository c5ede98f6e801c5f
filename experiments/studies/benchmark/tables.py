"""The tables of a benchmark, from its record alone."""

from collections.abc import Sequence
import textwrap
from typing import Any

import numpy as np
import pandas as pd

from experiments.analysis.tables import number, Table, table
from experiments.studies.benchmark import measure

# Peak dense bf16 FLOP/s by JAX's name for the chip. NVIDIA: data sheets of H100, H200 and A100, whose numbers with
# sparsity are twice these; Google: cloud.google.com/tpu/docs/v4, v5e, v5p and v6e.
PEAK_FLOPS = {
  'NVIDIA H100 80GB HBM3': 989e12,
  'NVIDIA H100 PCIe': 756e12,
  'NVIDIA H100 NVL': 835e12,
  'NVIDIA H200': 989e12,
  'NVIDIA A100-SXM4-40GB': 312e12,
  'NVIDIA A100-SXM4-80GB': 312e12,
  'TPU v4': 275e12,
  'TPU v5 lite': 197e12,
  'TPU v5': 459e12,
  'TPU v6 lite': 918e12,
}
_UNITS = ((1.0, 's'), (1e-3, 'ms'), (1e-6, 'us'))


def tables(records: pd.DataFrame, _: Any) -> dict[str, Table]:
  """`speed` of all; `steps` of training where one was measured; the `machine`."""
  cases = records.groupby(['part', 'work'], sort=False)
  records = records.astype(dict.fromkeys(measure.NUMBERS, float)).assign(
    is_ours=cases.cumcount() == 0, ours=cases['seconds'].transform('first')
  )
  steps = records[(records['tokens'] > 0) & records['seconds'].astype(bool)]
  machines = records.drop_duplicates('environment')
  found = {
    'speed': table(
      'Time: median and quartiles. Ratio: speed-up of ours in each round, median and quartiles',
      [_speed(record) for record in records.itertuples()],
      num_texts=2,
    ),
    'steps': table(
      'One step: GFLOP by XLA; GFLOP, speed and share of the peak of its matrix products',
      [_step(record) for record in steps.itertuples()],
      num_texts=2,
    ),
    'machine': table('Measured on', [_machine(record) for record in machines.itertuples()], num_texts=3),
  }
  return {name: shown for name, shown in found.items() if len(shown.frame)}


def _names(record: Any, width: int) -> dict[str, str]:
  """The case, once, and its contender, in lines of this width."""
  contender = f'{record.way}: {record.note}' if record.note else record.way
  return {
    'case': textwrap.fill(record.work, width) if record.is_ours else '',
    'contender': textwrap.fill(contender, width),
  }


def _speed(record: Any) -> dict[str, str]:
  """Cells of speed, error against float64 and memory."""
  # Nothing where either could not be measured.
  ratios = [] if record.is_ours else [theirs / ours for theirs, ours in zip(record.seconds, record.ours)]
  median = np.median(record.seconds or 0)
  scale, unit = next((pair for pair in _UNITS if median >= pair[0]), _UNITS[-1])
  time, time_quartiles = _quartiles([seconds / scale for seconds in record.seconds], '.1f', f' {unit}')
  ratio, ratio_quartiles = _quartiles(ratios, '.2f')
  return {
    **_names(record, 24),
    'time': time,
    'quartiles': time_quartiles,
    'ratio': ratio,
    'ratio quartiles': ratio_quartiles,
    'error': number(record.error, '.0e'),
    'MB': number(record.memory_bytes / 1e6, ',.0f'),
  }


def _quartiles(values: Sequence[float], form: str, unit: str = '') -> tuple[str, str]:
  """The median, and the first and third quartile; '' without values."""
  if not values:
    return '', ''
  low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
  return f'{median:{form}}{unit}', f'{low:{form}} - {high:{form}}'


def _step(record: Any) -> dict[str, str]:
  """Cells of FLOPs, their share of the chip's peak, tokens a second, and compile time."""
  seconds = np.median(record.seconds)
  speed = record.product_flops / seconds
  # The peak is for bfloat16 alone.
  peak = PEAK_FLOPS.get(record.devices[0], np.nan) if record.dtype == 'bfloat16' else np.nan
  return {
    **_names(record, 19),
    'GFLOP': _giga(record.flops),
    'products': _giga(record.product_flops),
    'GFLOP/s': _giga(speed),
    'of peak': number(speed / peak, '.0%'),
    'tokens/s': f'{record.tokens / seconds:,.0f}',
    'compile': '' if np.isnan(record.compile_seconds) else f'{record.compile_seconds:.1f} s',
  }


def _giga(value: float) -> str:
  return number(value / 1e9, ',.0f' if value >= 1e11 else '.2f')


def _machine(record: Any) -> dict[str, str]:
  versions = {'jax': record.packages['jax'], **record.peers}
  shown = ', '.join(f'{name} {version}' for name, version in versions.items() if version)
  return {
    'device': ', '.join(sorted(set(record.devices))),
    'CPU': record.cpu,
    'versions': textwrap.fill(shown, 32),
    'load before': f'{record.load:.1f}',
    'commit': record.commit[:12],
  }
