"""Many runs at once: worker processes of one thread each, and what they say of themselves."""
