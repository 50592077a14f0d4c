"""What horovod.bench network makes of its measurements."""

from __future__ import annotations

import argparse
from itertools import combinations

import pytest

from horovod.bench.links import Link, Step, host_names, rounds_of, slow_among
from horovod.bench.network import parser


@pytest.mark.parametrize("hosts", [0, 1, 2, 3, 4, 7, 16])
def test_each_pair_meets_once_and_no_host_twice_in_a_round(hosts: int) -> None:
    rounds = rounds_of(hosts)
    assert sorted(pair for pairs in rounds for pair in pairs) == list(combinations(range(hosts), 2))
    for pairs in rounds:
        met = [host for pair in pairs for host in pair]
        assert len(met) == len(set(met)) >= (hosts // 2) * 2


def test_hosts_of_one_name_are_told_apart() -> None:
    assert host_names([("a", 0), ("a", 1), ("b", 0)]) == ["a", "a", "b"]
    assert host_names([("x", 0), ("x", 1), ("x", 0), ("x", 1), ("x", 0)]) == ["x", "x", "x (2)", "x (2)", "x (3)"]


def test_a_link_is_slow_beside_those_of_its_kind() -> None:
    between = [Link("a", "b", 50, 1e9), Link("b", "a", 50, 0.4e9), Link("a", "c", 50, 0.9e9), Link("c", "a", 50, 0.5e9)]
    inside = [Link("a", "a", 2, 9e9), Link("b", "b", 2, 8e9), Link("c", "c", 2, 3e9)]
    assert slow_among(between + inside) == [
        "slow: b -> a: 0.400 GB/s, where a quarter has 1.000 or more",
        "slow: inside c: 3.000 GB/s, where a quarter has 9.000 or more",
    ]
    assert slow_among(between[:1]) == slow_among([]) == []


def test_a_host_that_is_slow_both_ways_is_slow_beside_two_others() -> None:
    pairs = [(a, b) for a in "abc" for b in "abc" if a != b]
    links = [Link(a, b, 50, 0.1e9 if "c" in (a, b) else 1e9) for a, b in pairs]
    assert [line.split(": ")[1] for line in slow_among(links)] == ["a -> c", "b -> c", "c -> a", "c -> b"]


def test_a_step_is_between_all_and_nothing_hidden() -> None:
    assert str(Step(300.0, 100.0)) == (
        "a step of 300 ms on one rank takes 300.0 to 400.0 ms: 75 % to 100 % of the speed of as many single ranks"
    )
    assert Step(100.0, 300.0).as_json() == {
        "alone_ms": 100.0, "best_ms": 300.0, "worst_ms": 400.0, "best_efficiency": 0.3333, "worst_efficiency": 0.25,
    }  # fmt: skip


@pytest.mark.parametrize("wrong", ["--step-ms=", "--step-ms=1,x", "--step-ms=0", "--seconds=nan", "--message=0"])
def test_options_that_mean_nothing_are_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args([wrong])
    assert "expected" in capsys.readouterr().err
    assert isinstance(parser().parse_args([]), argparse.Namespace)  # the defaults can be read
