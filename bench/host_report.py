"""Tables and promises of what happens inside one host: shared memory, small calls, negotiation, memory per rank."""

from __future__ import annotations

from typing import Any

from report import Goal, busbw, size_name, table

BUCKET_MB = (25 << 20) / 1e6
COUNT_PER_MS = {"grouped": 500, "single": 200}  # thousands a second


def shared_memory_table(mpi: str, entries: list[dict[str, Any]]) -> str:
    arms = ["ours_shared", "in_place", "parts", "ours_staged", *([mpi] if mpi else [])]
    header = ["tensors in shared memory", "np", *(f"{arm} us" for arm in arms), "GB/s", "% of in_place"]
    header += [f"{mpi} / shared", f"{mpi} / shared, net"] if mpi else []
    rows = []
    for entry in entries:
        p50, whole = entry["p50_us"], entry["whole_us"]
        ours = p50["ours_shared"]
        row = [size_name(entry["size"]), str(entry["np"]), *(f"{p50[arm]:.0f}" for arm in arms)]
        # With more ranks than cores, a rank's own time in a loop that never waits is no bound.
        share = f"{100 * p50['in_place'] / ours:.0f}" if entry["np"] == 2 else ""
        row += [f"{busbw(entry['size'], entry['np'], ours):.1f}", share]
        if mpi:
            net = (whole[mpi] - whole["nothing"]) / (whole["ours_shared"] - whole["nothing"])
            row += [f"{p50[mpi] / ours:.1f}", f"{net:.1f}"]
        rows.append(row)
    return table(header, rows)


def small_calls_table(result: dict[str, Any]) -> str:
    rows = [[pause, *(f"{us:.1f}" for us in times.values())] for pause, times in result.items()]
    return table(["4 B through Python, np=2", *(f"{name} us" for name in result["tight loop"])], rows)


def per_ms(entry: dict[str, Any], how: str) -> float:
    return float(entry["tensors"] / entry[how]["ms"])


def negotiation_table(result: dict[str, Any]) -> str:
    header = ["cached tensors of 4 B", "capacity", "grouped ms", "to submit", "k/s", "single ms", "to submit", "k/s"]
    rows = []
    for capacity, entry in result.items():
        row = [str(entry["tensors"]), capacity]
        for how in ("grouped", "single"):
            row += [f"{entry[how]['ms']:.1f}", f"{entry[how]['submit_ms']:.1f}", f"{per_ms(entry, how):.0f}"]
        rows.append(row)
    return table(header, rows)


def beyond(result: dict[str, Any], way: str, base: str) -> float:
    """Megabytes, of pages that several ranks have mapped this rank's share."""
    return float(result[way]["pss"] - result[base]["pss"])


def memory_table(result: dict[str, Any]) -> str:
    header = ["gradients of a ResNet-50, np=2", "MB", "private", "shared", "RSS"]
    kinds = ("pss", "pss_anon", "pss_shmem", "rss")
    return table(header, [[way, *(f"{mb[kind]:.1f}" for kind in kinds)] for way, mb in result.items()])


def goals(results: dict[str, Any]) -> list[Goal]:
    """The promises of docs/benchmarks.md, as report.goals()."""
    found: list[Goal] = []
    if "exchanged_us" in results:
        found.append(Goal("4 B in C++, np=2, exchanged by polling callers", results["exchanged_us"], 1, "us"))
    for mpi, entries in results.get("shared_memory", {}).items():
        for entry in entries:
            what = f"{size_name(entry['size'])} in shared memory, np={entry['np']}"
            ours = entry["p50_us"]["ours_shared"]
            if entry["np"] == 2 and entry["size"] > 1 << 20:
                found.append(Goal(f"{what}, over in_place", ours / entry["p50_us"]["in_place"], 1 / 0.85, "x"))
            if entry["np"] == 4 and mpi == "open_mpi":
                found.append(Goal(f"{what}, over Open MPI", ours / entry["p50_us"][mpi], 1 / 3, "x"))
    if calls := results.get("small_calls"):
        found.append(Goal("4 B through Python, tight loop", calls["tight loop"]["ours"], 15, "us"))
        found.append(Goal("the same between 2 ms of work", calls["2 ms of work between"]["ours"], 40, "us"))
    for capacity, entry in results.get("negotiation", {}).items():
        for how, least in COUNT_PER_MS.items():
            name = f"{entry['tensors']} cached tensors, {how}, capacity {capacity}"
            found.append(Goal(name, entry[how]["ms"], entry["tensors"] / least, "ms"))
    if memory := results.get("memory_mb"):
        found.append(Goal("memory for private gradients", beyond(memory, "ours", "local"), 2 * BUCKET_MB, "MB"))
        found.append(Goal("memory for exchanged tensors", beyond(memory, "exchanged", "held"), 2 * BUCKET_MB, "MB"))
        # What a heap differs by from run to run is no memory for gradients.
        found.append(Goal("memory for views of buckets", beyond(memory, "ours_views", "local_kept"), 5, "MB"))
    return found
