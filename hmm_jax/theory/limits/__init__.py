"""The reach of any linear head: separability, certificates, the best head.

Where no such head exists, the proof is checked in exact arithmetic.
"""
