"""Programs that stand for others on the path of a script."""


def put(folder, programs):
  """Write each by its name, for all to run."""
  folder.mkdir(exist_ok=True)
  for name, text in programs.items():
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
