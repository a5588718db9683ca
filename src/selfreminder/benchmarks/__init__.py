"""The benchmarks: streams of tasks, the networks that learn them, and their scales."""
