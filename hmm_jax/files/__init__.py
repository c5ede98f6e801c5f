"""Folders that other tools open: models as Hugging Face has them, prompts as PEFT has them."""
