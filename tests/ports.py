"""A port for a server that a test starts: one that nobody is given by chance while the server is starting."""

import random
import socket


def find_port() -> int:
    """A free port below those that the system gives to whoever asks for any; two tests at once hardly meet."""
    chance = random.SystemRandom()
    while True:
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port := chance.randrange(20_000, 30_000)))
            except OSError:
                continue
            return port
