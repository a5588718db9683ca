"""The command line: each module parses, calls the library, prints."""
