"""What runs cost, and what compiled steps send between devices: the programs that write docs/cost.md and docs/scale.md.

The counting itself is `pipeline/cost.py`.
"""
