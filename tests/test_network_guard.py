"""The guard of conftest.py holds."""

import socket

import pytest


def test_a_connection_to_another_machine_fails():
    with socket.socket() as s, pytest.raises(pytest.fail.Exception, match="tried to reach"):
        s.connect(("192.0.2.1", 80))  # an address kept for documentation (RFC 5737)
    with socket.socket() as s, pytest.raises(pytest.fail.Exception, match="tried to reach"):
        s.connect_ex(("example.invalid", 80))


def test_a_connection_to_this_machine_works():
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
