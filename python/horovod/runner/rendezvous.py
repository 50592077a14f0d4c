"""Where the processes of a job meet, for programs that start them without horovodrun.

    with RendezvousServer(2) as server:
        ranks = [subprocess.Popen(command, env=os.environ | server.environment(rank)) for rank in range(2)]
        codes = [rank.wait() for rank in ranks]
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from horovod._common.native import core

__all__ = ["RendezvousServer"]


class RendezvousServer:
    """A rendezvous server on a thread of this process. It knows nothing of how the ranks are started, and starts none.

    The ranks need `environment(rank)`; where they run on other hosts, they need the secret file there too, with mode
    0600. The secret is in no environment and no argument list. Ranks meet here in every `hvd.init()`, and find each
    other's addresses here when two of them connect for the first time; what is connected goes on without the server.
    All `num_proc` of them must come; any other process is refused. It listens at once, and ends with stop() or the
    `with` block.

    Args:
        num_proc: The number of ranks.
        listen: Numeric addresses of this host, or "0.0.0.0" or "::" for all of them.
        port: The port to listen on; 0 picks one that is free.
        secret_file: A file with 64 hexadecimal digits that only this user may read or write. Without it a secret is
            made, in a file that lives as long as the server.
        tls: Every TCP connection of the job is TLS 1.3; environment() says so to the ranks.

    Raises:
        ValueError: An address is not of this host, the port is taken, or others may read the file.
    """

    def __init__(
        self,
        num_proc: int,
        *,
        listen: str | Sequence[str] = "127.0.0.1",
        port: int = 0,
        secret_file: str | None = None,
        tls: bool = False,
    ) -> None:
        addresses = [listen] if isinstance(listen, str) else list(listen)
        self._num_proc = num_proc
        self._tls = tls
        self._server = core.RendezvousServer(num_proc, addresses, port, secret_file, tempfile.gettempdir(), tls)

    @property
    def address(self) -> str:
        """The first address in `listen`; the name of this host when that stands for all of its addresses."""
        return self._server.address

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._server.port

    @property
    def secret_file(self) -> str:
        """The path of the file with the job's secret."""
        return self._server.secret_file

    def environment(self, rank: int) -> dict[str, str]:
        """The variables with which a process is this rank; on another host the server may have another address."""
        if not 0 <= rank < self._num_proc:
            raise ValueError(f"rank {rank} is not in 0..{self._num_proc - 1}")
        tls = {"HOROVOD_TLS": "1"} if self._tls else {}
        return tls | {
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": str(self._num_proc),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": self.address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self.port),
            "HOROVOD_SECRET_FILE": self.secret_file,
        }

    def stop(self) -> None:
        """Ends the server and removes the secret file that it made.

        Call it when the ranks have ended: they need the server for their first operation, not for init() alone.
        """
        self._server.stop()

    def __enter__(self) -> RendezvousServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
