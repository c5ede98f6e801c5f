"""The questions beyond the main line: a study is a module or a package; `registry.py` has every experiment by name.

`study.py` runs a study of several parts and records each as it ends.
"""
