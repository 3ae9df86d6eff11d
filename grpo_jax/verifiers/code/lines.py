"""The program's side of a conversation: a line of JSON in, a line of JSON out."""

import json
import os
from typing import Any

from grpo_jax.verifiers.sandbox.confine import REPLIES, REQUESTS

_READ_BYTES = 65_536


class Lines:
    """Reads requests and writes replies, without Python's buffered files, which a fork would copy."""

    def __init__(self) -> None:
        self._received = b""

    def receive(self) -> Any:
        """Waits for a request; ``None`` once there are no more."""
        while b"\n" not in self._received:
            chunk = os.read(REQUESTS, _READ_BYTES)
            if not chunk:
                return None
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    def send(self, reply: Any) -> None:
        """Sends a reply."""
        view = memoryview(json.dumps(reply).encode("ascii") + b"\n")
        while view:
            view = view[os.write(REPLIES, view) :]
