"""Where a BERT holds the belief over hidden states, beside controls that could refute it."""
