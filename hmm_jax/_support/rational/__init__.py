"""Linear algebra and inference in fractions and integers, sharing no code with the floating-point programs."""
