"""The theorems that apply to the tasks of Figure 3 (left)."""
