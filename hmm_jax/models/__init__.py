"""Masked language models, BERT and the exact one, and pretraining."""
