"""The upgrade against the recorded requests and responses of the upstream peers."""

from typing import Any

import pytest

from protocol.upgrade import accepting_response, is_accepted, judge_request, upgrade_request

END = "\r\n\r\n"


def test_recorded_upgrade_is_spoken_byte_for_byte(recorded_connection: dict[str, Any]) -> None:
    if "http" not in recorded_connection:
        pytest.skip("this recording has no upgrade")
    request, response = (message["text"] for message in recorded_connection["http"])
    path = request.split(" ")[1]
    authority = request.split("Host: ")[1].split("\r\n")[0]
    key = request.split("Sec-WebSocket-Key: ")[1]

    assert upgrade_request(authority, path, key).decode() == request + END
    assert judge_request(request.encode(), path) == key.encode()
    assert accepting_response(key.encode()).decode() == response + END
    assert is_accepted(response.encode(), key)
