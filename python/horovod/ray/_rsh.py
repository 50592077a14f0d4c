"""The program that horovodrun calls as --rsh: has the agent of a node started by who listens at a socket.

    python -I -S _rsh.py NAME NODE AGENT-COMMAND...

It hands its standard streams over and waits for the agent's exit code. Only the standard library: it runs once for
each node, and starts in no time.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys

_LOST = 255  # as ssh, which has lost its connection
_PEER = struct.Struct("3i")  # process, user, group: struct ucred


def main() -> int:
    name, node, *command = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"\0{name}")
        _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if user != os.geteuid():  # as ray_logger.is_of_this_user(), which is not on the path
            print("horovod.ray: another user listens where the job did", file=sys.stderr)
            return _LOST
        request = json.dumps({"node": node, "command": command}) + "\n"
        socket.send_fds(connection, [request.encode()], [0, 1, 2])
        with connection.makefile() as answers:
            code = answers.readline()
    return int(code) if code else _LOST


if __name__ == "__main__":
    sys.exit(main())
