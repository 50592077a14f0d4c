"""The program that horovodrun calls as --rsh: has the agent of a node started by the process that listens at a socket.

    python -I -S _rsh.py SOCKET NODE AGENT-COMMAND...

It hands its standard streams over and waits for the agent's exit code. Only the standard library: it runs once for
each node, and starts in no time.
"""

from __future__ import annotations

import json
import socket
import sys

_LOST = 255  # as ssh, which has lost its connection


def main() -> int:
    path, node, *command = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = json.dumps({"node": node, "command": command}) + "\n"
        socket.send_fds(connection, [request.encode()], [0, 1, 2])
        with connection.makefile() as answers:
            code = answers.readline()
    return int(code) if code else _LOST


if __name__ == "__main__":
    sys.exit(main())
