"""help() answers for the public names; those of TensorFlow and Keras are asked in the suites that import them."""

from __future__ import annotations

from importlib import import_module

from documented import undocumented

MODULES = """
horovod horovod.common.basics horovod.common.elastic horovod.common.exceptions horovod.common.process_sets
horovod.common.util horovod.data horovod.runner horovod.runner.common.service.compute_service
horovod.runner.common.util.codec horovod.runner.common.util.env horovod.runner.common.util.host_hash
horovod.runner.common.util.hosts horovod.runner.common.util.interfaces horovod.runner.common.util.secret
horovod.runner.common.util.timeout horovod.runner.elastic.discovery horovod.runner.launch horovod.runner.rendezvous
horovod.runner.util.network
horovod.runner.util.streams horovod.runner.util.threads horovod.torch horovod.torch.compression horovod.torch.elastic
horovod.torch.functions horovod.torch.mpi_ops
""".split()


def test_every_public_name_is_documented_with_its_arguments() -> None:
    assert undocumented(*map(import_module, MODULES)) == []


def test_what_help_lacks_is_found() -> None:
    def documented(first: int, second: int) -> int:
        """Adds `first` to what is given besides."""
        return first + second

    module = type(import_module("sys"))("faulty")
    vars(module).update(
        documented=documented, silent=lambda: None, NUMBER=3, __all__=["documented", "silent", "NUMBER"]
    )
    assert undocumented(module) == [
        "faulty.documented: nothing is said of second",
        "faulty.silent: '' is no documentation",
    ]
