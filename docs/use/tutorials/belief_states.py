# %% [markdown]
# # Does a language model hold the belief state?
#
# The *belief state* is the law of a hidden state given the tokens seen. Pretrain a small causal BERT on texts of a
# process and probe its layers for the belief, as Shai et al. (2024) did. Minutes on two CPU cores.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import hmm_jax as hj

# %% [markdown]
# ## A process
#
# Mess3 has three states. `T[v, i, j]` is the probability of token v and next state j in state i.

# %%
stays = np.full((3, 3), 0.05) + 0.85 * np.eye(3)  # next state, given the state
emits = np.full((3, 3), 0.075) + 0.775 * np.eye(3)  # token, given the next state
T = stays[None] * emits.T[:, None]
process = hj.from_transition_matrices(T)
texts = hj.sample_corpus(jax.random.key(1), process, 2000, 32)
print(texts[0])

# %% [markdown]
# Exact beliefs over the states of T: row t is given the tokens before t. That of token 3 by hand:

# %%
beliefs = hj.beliefs(process, texts, causal=True)
by_hand = np.full(3, 1 / 3)
for token in texts[0, :3]:
  by_hand = by_hand @ T[token]
by_hand /= by_hand.sum()
np.testing.assert_allclose(beliefs[0, 3], by_hand, atol=1e-5)
print(by_hand.round(4))

# %% [markdown]
# ## A model
#
# Row t of a causal BERT is its law of token t given those before, beside row t of `beliefs`. An untrained network
# is the control.

# %%
bert = hj.Bert(
  num_tokens=3, num_layers=2, width=32, num_heads=4, ffn_width=64, max_positions=64, dropout_rate=0.0, causal=True
)
model, params = hj.pretrain(process, jax.random.key(0), steps=300, bert=bert)
_, untrained = hj.pretrain(process, jax.random.key(0), steps=0, bert=bert)

# %% [markdown]
# ## Probes
#
# A probe maps activations at the last token to the belief there, and is tested on other texts. KL in nats: 0 is the
# belief itself.

# %%
last = beliefs[:, -1]
features = {f'trained {name}': x[:, -1] for name, x in hj.activations(model, params, texts).items()}
features |= {f'untrained {name}': x[:, -1] for name, x in hj.activations(model, untrained, texts).items()}
probes = {name: hj.probe(x, last, jax.random.key(2), kind='softmax') for name, x in features.items()}
for name, probe in probes.items():
  print(f'{name:20} R^2 {probe.r_squared:6.3f}  KL {probe.kl:.3f}')

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 3))
hj.plots.simplex(last, ax=axes[0]).set_title('exact')
for ax, name in zip(axes[1:], ('trained layer_2', 'untrained layer_2')):
  hj.plots.simplex(probes[name](features[name]), last, ax=ax).set_title(name)

# %% [markdown]
# A picture is no evidence: the untrained network's resembles the belief too. Compare numbers, also with readers of
# tokens: `kind='table'` on `tokens_around`, and `one_hot_window`, of `hmm_jax.tuning.token_readers`. They can be
# nearer to the belief than the model ([findings](../../findings/belief_states.md)).
#
# ## A patch
#
# A probe shows what can be read, not what is used. Give the last position another text's activation: does the
# prediction match the other text's belief?

# %%
expected = last[::-1] @ T.sum(2).T  # the law of the token, given the other text's belief
positions = np.array([31])
laws = {'no patch': hj.token_probs(model, params, texts, positions)[:, 0]}
for layer in ('layer_1', 'layer_2'):
  swap = {layer: lambda x: x.at[:, -1].set(x[::-1, -1])}
  laws[layer] = hj.with_activations(model, params, texts, swap, positions=positions)[:, 0]
for name, law in laws.items():
  print(f'{name:10} KL {(expected * np.log(expected / law)).sum(-1).mean():.4f}')

# %% [markdown]
# ## Save
#
# `hj.load` and Hugging Face open the folder. The arrays have activations, beliefs and T.

# %%
hj.save('mess3_bert', model, params, process)
hj.save_activations('mess3_activations.npz', model, params, texts, process)
