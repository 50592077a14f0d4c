"""What this build has and what it finds on this machine; asked before init(), too."""

from __future__ import annotations

from horovod._common.native import core


class BuildInformation:
    """The part of HorovodBasics that needs no session."""

    def mpi_threads_supported(self) -> bool:
        """ValueError, always: this build has no MPI."""
        raise ValueError("mpi_threads_supported: this build of Horovod has no MPI")

    def mpi_enabled(self) -> bool:
        """False: this build has no MPI."""
        return False

    def mpi_built(self) -> bool:
        """False: this build has no MPI."""
        return bool(core.built_with().get("mpi", 0))

    def gloo_enabled(self) -> bool:
        """True: collectives run on Gloo's algorithms."""
        return self.gloo_built()

    def gloo_built(self) -> bool:
        """True: collectives run on Gloo's algorithms."""
        return bool(core.built_with().get("gloo", 1))

    def nccl_built(self) -> int:
        """The version code of the NCCL that this process finds, an int, such as 23203 for 2.32.3; 0 if there is none.

        It is HOROVOD_NCCL_LIBRARY, else the one that the framework has loaded, else the package nvidia-nccl's, else the
        system's.
        """
        return int(core.nccl_version())

    def ddl_built(self) -> bool:
        """False: DDL is not supported."""
        return bool(core.built_with().get("ddl", 0))

    def ccl_built(self) -> bool:
        """False: oneCCL is not supported."""
        return bool(core.built_with().get("ccl", 0))

    def cuda_built(self) -> bool:
        """True: tensors on CUDA GPUs are taken where there is a driver for them."""
        return bool(core.built_with().get("cuda", 0))

    def rocm_built(self) -> bool:
        """Whether GPU collectives for ROCm are in the build."""
        return bool(core.built_with().get("rocm", 0))
