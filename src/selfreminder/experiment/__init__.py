"""Experiments: what to run (`spec`), running one (`run`), running many (`grid`), what was measured (`records`)."""
