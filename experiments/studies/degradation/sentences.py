"""The sentences of docs/degradation.md that have numbers in them, from records alone.

An order is claimed only where its p-value is below 0.05 over the number of differences in its table; anything else is
not told apart.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from experiments.analysis import statistics
from experiments.analysis.statistics import Difference
from experiments.records.results import Record
from experiments.studies.degradation import contrasts, report
from experiments.studies.degradation.contrasts import Condition
from hmm_jax.theory.problems.families import MARKED

# The settings of the records, as config.json has them.
Config = dict[str, Any]

_NAMES = {
  'construction': 'the construction',
  'weighted': 'the construction with the weighted inverse',
  'converged_built': "a converged head after the theorem's prompt",
  'converged_head': 'a converged head',
  'trained_head': 'the same head trained',
  'converged_prompt': 'a converged head after a trained prompt',
  'trained_prompt': 'the same prompt with the head that it was trained with',
}


def setup(records: list[Record], config: Config) -> str:
  """What was run."""
  hmms = len({record['hmm'] for record in records})
  majorities = [100 * record['majority_accuracy'] for record in records]
  most = lambda field: max(record[field] for record in records if field in record)
  return (
    f'{hmms} HMMs for each theorem: {config["num_states_3_3"]} states for Theorem 3.3, {config["num_states_3_6"]} for '
    f'Theorem 3.6, {config["num_tokens"]} tokens. All are planted, and of others nothing is said here: for 3.3 half of '
    f'what a state says is a word of its own; for 3.6 two states B move into H* alone, and all states outside H* '
    f'imitate it but for a mark: one token, {MARKED} of their emissions. The smallest singular value of the columns '
    f'of W that a theorem inverts is at least {config["conditioning"]:g}. '
    f'Inputs have {config["length"]} tokens, {config["num_train"]} to '
    f'train on and {config["num_test"]} to test on. HMM and task were drawn again while a class held more than '
    f'{config["largest_majority"]:.0%} of the inputs of any version of the HMM; the majority class of the training '
    f'inputs is right on {min(majorities):.0f} to {max(majorities):.0f}% of the test inputs. Trained prompts have '
    f'{config["prompt_length"]} vectors; trained heads and prompts have {config["tuning"]["num_epochs"]} epochs in '
    f'batches of {config["tuning"]["batch_size"]}. Converged heads have a ridge of {config["ridge"]:g} and took at '
    f'most {most("num_iterations")} iterations of L-BFGS to a gradient of norm {most("gradient_norm"):.0e} or less.'
  )


def noise(records: list[Record], config: Config) -> str:
  """Ways beside the construction at each level of noise."""
  pairs = [(way, 'construction') for way in ('converged_head', 'weighted', 'converged_built', 'converged_prompt')]
  return _by_pair(records, 'noise', [*pairs, ('converged_prompt', 'converged_head')])


def training(records: list[Record], config: Config) -> str:
  """What the epochs of training leave to be learned."""
  return _by_pair(records, 'noise', [('converged_head', 'trained_head'), ('converged_prompt', 'trained_prompt')])


def short_context(records: list[Record], config: Config) -> str:
  """A structured error beside noise of the same KL, and how often it had less."""
  chosen = statistics.select(records, error='short_context')
  less = sum(record['kl'] < 0.99 * record['level'] for record in chosen)
  lines = _across(records, lambda condition: condition.error == 'short_context')
  return f'{lines}\n\nIn {less} of {len(chosen)} cases the short context alone has less than the KL asked for.'


def singular_value(records: list[Record], config: Config) -> str:
  """A nearly singular W beside the HMM as it was drawn, with as much noise."""
  return _across(records, lambda condition: condition.damage == 'singular_value')


def leak(records: list[Record], config: Config) -> str:
  """A leak out of H* beside none, with as much noise."""
  return _across(records, lambda condition: condition.damage == 'leak')


def concentration(records: list[Record], config: Config) -> str:
  """Whether a trained prompt moves the posterior onto H*, and whether it does so for any task."""
  lines = []
  for error, level in report.controlled_levels(records):
    masses = contrasts.masses(records, error, level)
    means = {name: f'{statistics.mean_interval(values)}%' for name, values in masses.items()}
    found = contrasts.between_masses(records, error, level)
    beside = {pair: _compared(one, len(found)) for pair, one in found.items()}
    lines.append(
      f'On {len(masses["trained"])} {"BERTs" if error == "bert" else "HMMs"} the mean mass on H* is {means["without"]} '
      f'without a prompt, {means["start"]} with an untrained one, {means["trained"]} with one that was trained for mu '
      f'on H*, and {means["control"]} with one that was trained for mu on other states. Paired by HMM, the mass with '
      f'the prompt for mu on H* is {beside["trained", "without"]} beside that without a prompt, '
      f'{beside["trained", "start"]} beside that with an untrained one, and {beside["trained", "control"]} beside '
      f'that of the control; that of the control is {beside["control", "without"]} beside that without a prompt.'
    )
  return '\n'.join(lines)


def solved(records: list[Record], config: Config) -> str:
  """How many BERTs' prompts solve their tasks, and the mass on H* of those that do."""
  pairs = report.pairs_of_prompts(records)
  closes = lambda record: report.gap_closed(record) >= report.SOLVES
  left = [str(own['hmm']) for own, _ in pairs if not closes(own)]
  rest = f' (not that of BERT {", ".join(left)})' if left else ''
  own, control = (sum(map(closes, rows)) for rows in zip(*pairs))
  masses = [[100 * own['mass'][name] for own, _ in pairs if closes(own)] for name in ('trained', 'without')]
  moved = contrasts.difference(*map(np.array, masses))
  return (
    f'A prompt solves its task where it closes {report.SOLVES:g} of the gap from the majority class to 100%. Those of '
    f'{own} of {len(pairs)} BERTs solve the task with mu on H*{rest}, and those of {control} the control. Over the '
    f'{own} the mass on H* with the prompt is {_compared(moved, len(contrasts.MASS_PAIRS))} beside that without.'
  )


def bert(records: list[Record], config: Config) -> str:
  """Ways on BERT at each checkpoint."""
  pairs = [(way, 'construction') for way in ('converged_head', 'weighted', 'converged_prompt')]
  return _by_pair(records, 'bert', [*pairs, ('converged_prompt', 'converged_head')])


SENTENCES: dict[str, Callable[[list[Record], Config], str]] = {
  'setup': setup,
  'noise': noise,
  'training': training,
  'short_context': short_context,
  'singular_value': singular_value,
  'leak': leak,
  'concentration': concentration,
  'solved': solved,
  'bert': bert,
}


def _by_pair(records: list[Record], error: str, pairs: list[tuple[str, str]]) -> str:
  """A line for each theorem and pair of ways: what the first has, beside the second, at each level of an error."""
  lines, found = [], contrasts.between_ways(records)
  for theorem in dict.fromkeys(record['theorem'] for record in records):
    of_theorem = [c for c in contrasts.conditions(records) if (c.theorem, c.error, c.damage) == (theorem, error, '')]
    for first, second in pairs:
      has = [condition for condition in of_theorem if (condition, first, second) in found]
      beside = [(c, _compared(found[c, first, second], len(found))) for c in has]
      if has:
        lines.append(f'- Theorem {theorem}, {_NAMES[first]} beside {_NAMES[second]}: {_series(beside)}')
  return '\n'.join(lines)


def _across(records: list[Record], is_chosen: Callable[[Condition], bool]) -> str:
  """A line for each theorem and way: some conditions beside those that they make worse."""
  lines, found = [], contrasts.between_conditions(records, report.ACROSS)
  chosen = [condition for condition in contrasts.conditions(records) if is_chosen(condition)]
  for theorem in dict.fromkeys(condition.theorem for condition in chosen):
    for way in report.ACROSS:
      of_theorem = [condition for condition in chosen if condition.theorem == theorem]
      beside = [(c, _compared(found[c, way], len(found))) for c in of_theorem if (c, way) in found]
      lines.append(f'- Theorem {theorem}, {_NAMES[way]}: {_series(beside)}')
  return '\n'.join(lines)


def _series(beside: Iterable[tuple[Condition, str]]) -> str:
  return '; '.join(f'{report.name_of(condition)}: {text}' for condition, text in beside) + '.'


def _compared(found: Difference, count: int) -> str:
  """In percentage points."""
  mean, half_width, values = found.interval
  if not np.any(values):
    return 'the same'
  if not contrasts.is_order(found, count):
    return f'not told apart ({mean:+.1f} ± {half_width:.1f})'
  return f'{"above" if mean > 0 else "below"} by {abs(mean):.1f} ± {half_width:.1f}'
