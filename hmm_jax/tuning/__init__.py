"""Downstream tasks, heads and prompts, their training, and bounds on what linear heads can do."""
