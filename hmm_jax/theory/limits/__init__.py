"""The reach of any linear head or prompt: separability, certificates, the best head.

Where no such head or prompt exists, the proof is checked in exact arithmetic.
"""
