"""Facts about the paper's Example 4.1: the reading of its sentence, what each word tells, and Assumption 4.2."""

import jax
import jax.numpy as jnp
import numpy as np
from oracles import attention_by_the_paper, cells_of, float64, log_space_posterior
import pytest

from hmm_jax import example_4_1
from hmm_jax.hmm import token_likelihoods
from hmm_jax.memory_hmm import to_hmm
from hmm_jax.sampling import sample, sample_corpus
from hmm_jax.theory.theorems import assumptions, recovery
from hmm_jax.viterbi import most_likely_states

pytestmark = pytest.mark.usefixtures('without_optimisation')

EXACT = assumptions.Thresholds(support=0.0, rank=1e-9)
HMM, VOCABULARY = example_4_1.cow_in_the_pasture()
WORDS = example_4_1.SENTENCE.lower().replace('.', ' .').split()
# The cell that the paper says each of these words reads, from 0.
READ_IN_THE_PAPER = {'cow': 0, 'rolled': 0, 'pasture': 1, 'grass': 1, 'happily': 2}
RECOVERABLE = {
  'subject': ('subject noun', 'subject verb'),
  'location': ('place noun', 'ground noun'),
  'sentiment': ('mood verb', 'adverb'),
}


def posterior_of(sentence):
  """The posterior over joint states in float64, and the filtered probabilities of each cell [T, N, M]."""
  rows = np.asarray(float64(HMM).joint_emission_matrix, np.float64).T[example_4_1.encode(sentence, VOCABULARY)]
  posterior = log_space_posterior(HMM, rows)
  return posterior, cells_of(HMM.memory_probs.shape, posterior.filtered_probs)


def of_states(joint):
  """The probabilities of hidden states [..., H] from those of joint states."""
  return joint.reshape(*joint.shape[:-1], -1, HMM.num_states).sum(-2)


@pytest.fixture(scope='module')
def sentence():
  return posterior_of(example_4_1.SENTENCE)


def state_numbers(*names):
  return [VOCABULARY.states.index(name) for name in names]


def columns(states):
  """The paper's columns W[:, (m, h)] of all m and the given h, as rows."""
  return np.asarray(HMM.emission_matrix, np.float64)[:, states].reshape(-1, HMM.num_tokens)


def test_the_example_is_a_distribution_and_its_names_fit():
  """Every field is a distribution of the right shape, and everything has exactly one name."""
  HMM.validate()
  words, cells, values, states = VOCABULARY
  assert len(set(words)) == len(words) == HMM.num_tokens
  assert len(set(states)) == len(states) == HMM.num_states
  assert len(cells) == len(values) == HMM.num_cells
  assert {len(set(names)) for names in values} == {HMM.memory_size}


def test_the_papers_sentence_is_read_as_in_the_paper(sentence):
  """The likeliest memory and state path read the subject at cow and rolled, and so on, and so do the posteriors."""
  posterior, cells_TxNxM = sentence
  assert np.isfinite(posterior.marginal_loglik)
  tokens = example_4_1.encode(example_4_1.SENTENCE, VOCABULARY)
  rows = token_likelihoods(HMM, tokens, jnp.ones(tokens.shape, bool))
  path = np.asarray(most_likely_states(to_hmm(HMM), rows))
  assert len(set(path // HMM.num_states)) == 1
  held = np.unravel_index(path[0] // HMM.num_states, HMM.memory_probs.shape)
  assert [names[value] for names, value in zip(VOCABULARY.values, held)] == ['cow', 'pasture', 'happy']
  np.testing.assert_array_equal(cells_TxNxM[-1].argmax(-1), held)
  likeliest_read = of_states(posterior.smoothed_probs) @ np.eye(HMM.num_cells)[HMM.cell_index]
  for word, cell in READ_IN_THE_PAPER.items():
    assert HMM.cell_index[path[WORDS.index(word)] % HMM.num_states] == cell
    assert likeliest_read[WORDS.index(word)].argmax() == cell


def test_the_posterior_of_the_papers_memory_sharpens_at_more_than_one_word(sentence):
  """Cow, pasture and happy each gain at two words at least, and none is certain at the end."""
  _, cells_TxNxM = sentence
  final = cells_TxNxM[-1].argmax(-1)
  probs_TxN = cells_TxNxM[:, range(HMM.num_cells), final]
  assert ((np.diff(probs_TxN, axis=0) > 0.005).sum(0) >= 2).all()
  assert (probs_TxN[-1] > 0.75).all() and (probs_TxN[-1] < 0.95).all()


def test_articles_prepositions_and_full_stops_tell_nothing(sentence):
  """Where syntax is certain, the posterior of every cell after such a word is the one before it."""
  sampled = example_4_1.decode(sample(jax.random.key(0), HMM, 60)[1], VOCABULARY)
  prior = cells_of(HMM.memory_probs.shape, np.asarray(HMM.memory_probs, np.float64).reshape(-1))
  for text, (_, cells_TxNxM) in ((example_4_1.SENTENCE, sentence), (sampled, posterior_of(sampled))):
    words = np.asarray(example_4_1.encode(text, VOCABULARY))
    before = np.concatenate([prior[None], cells_TxNxM[:-1]])
    silent = np.isin(np.array(VOCABULARY.words)[words], ['the', 'a', 'in', 'near', 'on', 'beside', '.'])
    assert silent.sum() >= 5
    np.testing.assert_allclose(cells_TxNxM[silent], before[silent], atol=1e-7)
    moved = np.abs(cells_TxNxM - before).max((1, 2))
    assert moved[~silent].max() > 0.1


@pytest.mark.parametrize('cell', RECOVERABLE)
def test_assumption_4_2_holds_for_every_cell(cell):
  """The columns of M x H* are independent, and their span meets that of all other columns in 0 alone."""
  states = state_numbers(*RECOVERABLE[cell])
  assert {VOCABULARY.cells[j] for j in np.asarray(HMM.cell_index)[states]} == {cell}
  others = [state for state in range(HMM.num_states) if state not in states]
  rank = np.linalg.matrix_rank
  assert rank(columns(states)) == len(columns(states)) == 6
  assert rank(columns(states)) + rank(columns(others)) == rank(columns(states + others))
  assert np.linalg.svd(columns(states), compute_uv=False).min() > 0.1


def test_states_outside_every_recoverable_set_say_the_same_of_every_value():
  """Those of articles, prepositions and the full stop: their columns are one column M times; so 3.1 fails."""
  rank = {name: np.linalg.matrix_rank(columns(state_numbers(name))) for name in VOCABULARY.states}
  recoverable = {name for names in RECOVERABLE.values() for name in names}
  assert rank == {name: HMM.memory_size if name in recoverable else 1 for name in VOCABULARY.states}
  silent = {name for name in VOCABULARY.states if 'article' in name or 'preposition' in name or name == 'full stop'}
  assert recoverable == set(VOCABULARY.states) - silent
  every = columns(list(range(HMM.num_states)))
  assert np.linalg.matrix_rank(every) < len(every)


@pytest.mark.parametrize(
  ('cell', 'word'), [('subject', 'cow'), ('location', 'pasture'), ('location', 'grass'), ('sentiment', 'happily')]
)
def test_the_papers_sentence_is_in_the_region_of_theorem_4_3(sentence, cell, word):
  """supp P[H_i | x_-i] lies in H* at that word (4.3), and at rolled it does so for no cell."""
  posterior, _ = sentence
  support = lambda word: set(np.flatnonzero(of_states(posterior.leave_one_out_probs)[WORDS.index(word)]))
  assert support(word) <= set(state_numbers(*RECOVERABLE[cell]))
  assert not support('rolled') <= set(state_numbers(*RECOVERABLE[cell]))


@pytest.fixture(scope='module')
def texts(sentence):
  """(tokens, posterior over joint states) of the paper's sentence and of 100 sampled texts of as many words."""
  paper, posterior = np.asarray(example_4_1.encode(example_4_1.SENTENCE, VOCABULARY)), sentence[0]
  sampled = np.asarray(sample_corpus(jax.random.key(2), HMM, 100, len(WORDS)))
  columns = np.asarray(float64(HMM).joint_emission_matrix).T
  return [(paper, posterior), *((tokens, log_space_posterior(HMM, columns[tokens])) for tokens in sampled)]


def test_the_chain_of_the_example_starts_in_one_state():
  """So Assumption 3.2 fails, which Theorem 4.3 states and its proof does not use."""
  finding = assumptions.regularity(HMM, EXACT)
  assert not finding.holds
  assert finding.witness['states_without_start'].tolist() == list(range(1, HMM.num_states))
  assert len(finding.witness['communicating_classes']) == finding.witness['period'] == 1


@pytest.mark.parametrize('cell', RECOVERABLE)
def test_the_construction_of_theorem_4_3_recovers_each_cell_of_the_example(cell, texts):
  """With mu the identity its scores are P[M_j | x] up to a positive factor, on every text in R, and so is the label.

  A last class of weight 0 keeps mu the identity relative to it.
  """
  j, values = VOCABULARY.cells.index(cell), HMM.memory_size
  identity = np.vstack([np.eye(values), np.zeros((1, values))])
  head = recovery.theorem_4_3(HMM, identity, j, len(WORDS), EXACT)['head']
  states, checked = set(state_numbers(*RECOVERABLE[cell])), 0
  for tokens, posterior in texts:
    if not any(set(np.flatnonzero(row)) <= states for row in of_states(posterior.leave_one_out_probs)):
      continue
    token_probs = posterior.leave_one_out_probs @ np.asarray(float64(HMM).joint_emission_matrix)
    _, scores = attention_by_the_paper(head, token_probs, tokens, 0.0)
    expected = cells_of(HMM.memory_probs.shape, posterior.filtered_probs)[-1, j]
    cosine = scores[:values] @ expected / (np.linalg.norm(scores[:values]) * np.linalg.norm(expected))
    assert 1 - cosine <= 1e-9
    assert scores.argmax() == expected.argmax()
    checked += 1
  assert checked >= 60


def test_text_and_tokens_translate_into_each_other():
  """`encode` undoes `decode`, and `decode` writes sentences."""
  tokens = np.asarray(sample(jax.random.key(1), HMM, 60)[1])
  np.testing.assert_array_equal(example_4_1.encode(example_4_1.decode(tokens, VOCABULARY), VOCABULARY), tokens)
  twice = f'{example_4_1.SENTENCE} {example_4_1.SENTENCE}'
  assert example_4_1.decode(example_4_1.encode(twice, VOCABULARY), VOCABULARY) == twice


def test_an_unknown_word_is_named():
  """The refusal names the word and lists those that are known."""
  with pytest.raises(ValueError, match=r"'horse' is no word of the example; valid are \. a .*pasture"):
    example_4_1.encode('The horse in the pasture.', VOCABULARY)
