"""Gradients of single samples, and what is made of them: Fisher information, influence."""
