"""Pages are set up by files that are no tests."""

collect_ignore_glob = ["before/*"]
