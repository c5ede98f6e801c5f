"""Posteriors of a Markov chain from likelihood rows: message passing and the most likely path."""
