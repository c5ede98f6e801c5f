"""The study of the belief that a BERT holds over hidden states, beside controls that could refute it."""
