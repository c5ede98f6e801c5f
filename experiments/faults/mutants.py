"""What the campaign has to see: the program with one protection taken away, in a forked process alone."""

from collections.abc import Callable

MUTANTS: dict[str, Callable[[], None]] = {}
