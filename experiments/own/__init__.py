"""A user's own things: `data` has processes and corpora, `code` models and heads; each is read, checked and named."""
