"""Which columns of docs/benchmarks.md are drawn, and how: one entry for each figure, in the document's order."""

from __future__ import annotations

from dataclasses import replace

from figure_data import Panel

BY_SIZE_AND_NP = ("size", "np")

RATIO = Panel(
    "Open MPI's time / ours",
    "",
    {"measured": "Open MPI / ours"},
    {"goal, at least": "goal"},
    labels=BY_SIZE_AND_NP,
    equal="Open MPI",
)
CPP = Panel(
    "time, µs",
    "µs",
    {"ours": "ours µs", "stock Gloo": "stock Gloo µs", "bound": "bound µs"},
    title="np=2",
    where={"np": "2"},
    logarithmic=True,
    lines=True,
)
EXCHANGED = Panel("time, µs", "µs", {"before": "np=2: before", "now": "now"}, title="np=2", logarithmic=True)
HOSTS = {"in a row, before": "in a row: before", "in a row, now": "now"}
HOSTS |= {"in turns, before": "in turns: before", "in turns, now": "now#2"}
RING = Panel(
    "time / time of the ring",
    "",
    {
        "at once, 4 hosts": "at once: 4 hosts",
        "at once, 6 hosts": "6 hosts",
        "at once, 8 hosts": "8 hosts",
        "halving, 4 hosts": "halving: 4 hosts",
        "halving, 6 hosts": "6 hosts#2",
        "halving, 8 hosts": "8 hosts#2",
    },
    title="2.5 ms one way",
    equal="the ring",
    lines=True,
    part=0,
)
TREE_SIZES = ("64 KiB", "128 KiB", "256 KiB", "512 KiB", "1 MiB", "2 MiB", "4 MiB")
TREE = Panel(
    "time / time of the chain",
    "",
    {size: size for size in TREE_SIZES},
    title="2.5 ms one way",
    equal="the chain",
    lines=True,
    turned=True,
    part=0,
)
DEFAULT_CALL = Panel(
    "wall time / that of the sum in place",
    "",
    {"16 MiB": "16 MiB: wall", "256 MiB": "256 MiB: wall"},
    {"goal, at most": "goal (wall)"},
    where={"call": "(?!allreduce_, Sum)"},
    equal="the sum in place",
)
CONTROL = Panel(
    "processor time and path, ms",
    "ms",
    {"the busiest rank": "work", "the root": "root's work", "critical path": "critical path"},
    logarithmic=True,
)

FIGURES: dict[str, tuple[Panel, ...]] = {
    "starts": (
        Panel(
            "time, ms, at least",
            "ms",
            {"measured": "measured"},
            {"goal, at most": "goal"},
            where={"what": "horovodrun|8 ranks"},
            logarithmic=True,
            leading=True,
        ),
    ),
    "tls": (
        Panel(
            "time with TLS / without",
            "",
            {size: size for size in ("4 B", "64 KiB", "1 MiB", "16 MiB", "64 MiB")},
            equal="without TLS",
            lines=True,
            turned=True,
        ),
    ),
    "default_call": (
        DEFAULT_CALL,
        replace(
            DEFAULT_CALL,
            axis="processor time / that of the sum in place",
            series={"16 MiB": "processor", "256 MiB": "processor#2"},
            marks={},
        ),
    ),
    "cpp": (CPP, replace(CPP, title="np=4 on 2 cores", where={"np": "4"})),
    "torch_ddp": (Panel("time beyond a local step, ms", "ms", {"ours": "ours - local", "torch DDP": "DDP - local"}),),
    "exchanged": (
        EXCHANGED,
        replace(EXCHANGED, title="np=4 on 2 cores", series={"before": "np=4 on 2 cores: before", "now": "now#2"}),
        replace(EXCHANGED, title="np=8 on 2 cores", series={"before": "np=8 on 2 cores: before", "now": "now#3"}),
    ),
    "exchanged_open_mpi": (
        Panel(
            "time, µs",
            "µs",
            {"ours, before": "before", "ours": "now", "Open MPI": "Open MPI", "torch gloo": "torch gloo"},
            labels=BY_SIZE_AND_NP,
            logarithmic=True,
        ),
        replace(RATIO, series={"measured": "Open MPI / ours now"}),
    ),
    "shared_memory": (
        Panel(
            "time, µs",
            "µs",
            {"ours": "ours_shared", "Open MPI": "Open MPI", "MPICH": "MPICH"},
            {"bound: in place": "in_place", "bound: parts": "parts"},
            labels=BY_SIZE_AND_NP,
            logarithmic=True,
        ),
        replace(RATIO, series={"the call": "Open MPI / ours", "net": "the same, net"}, marks={}),
    ),
    "memory": (Panel("memory of rank 0, MB", "MB", {"all": "all", "private": "private", "shared": "shared"}),),
    "two_hosts_pieces": (
        Panel("time, ms", "ms", HOSTS, {"at best": "at best"}, title="1 Gbit/s", logarithmic=True, spread=True),
        Panel(
            "time, ms",
            "ms",
            {
                "in a row, before": "no limit, in a row: before",
                "in a row, now": "now#3",
                "in turns, before": "in turns: before#2",
                "in turns, now": "now#4",
            },
            title="no limit",
            logarithmic=True,
            spread=True,
        ),
    ),
    "two_hosts_calls": (Panel("time, ms", "ms", HOSTS, {"at best": "at best"}, spread=True),),
    "connections_trial": (
        Panel(
            "time, ms",
            "ms",
            {"the trial's": "0: the trial's", "1": "1", "4": "4"},
            labels=("network", "call"),
            logarithmic=True,
        ),
    ),
    "ring": (RING, replace(RING, title="0.6 ms one way", part=1)),
    "tree": (TREE, replace(TREE, title="0.6 ms one way", part=1)),
    "control_plane": (
        CONTROL,
        Panel("sent and received by the busiest rank, kB", "kB", {"bytes": "bytes"}, logarithmic=True),
    ),
    "scaling": (Panel("efficiency, %", "%", {"as built": "efficiency", "rings alone": "with rings alone"}),),
}
