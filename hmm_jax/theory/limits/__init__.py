"""What any linear head or prompt can reach: separability, certificates, the best head, what KL guarantees.

A proof that none exists is confirmed in exact arithmetic.
"""
