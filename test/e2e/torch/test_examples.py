"""The examples do what their README says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs import ROOT, assert_learned, run_to_end

pytestmark = pytest.mark.takes(60)

EXAMPLES = ROOT / "examples"
LAST_LINE = "test accuracy _ (wanted 0.95); all {} ranks hold bitwise equal parameters"


def assert_trained(job: Any, ranks: int) -> None:
    assert_learned(job, LAST_LINE.format(ranks))
    assert len(re.findall(r"epoch \d+/\d+: loss", job.out)) == 10


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)])
def test_digits_are_learned(horovodrun: Any, ranks: int) -> None:
    job = horovodrun(ranks, str(EXAMPLES / "pytorch_digits.py"))
    assert_trained(job, ranks)


def test_digits_are_learned_without_a_launcher() -> None:
    job = run_to_end([sys.executable, str(EXAMPLES / "pytorch_digits.py")])
    assert_trained(job, 1)


def test_digits_on_two_hosts(horovodrun: Any) -> None:
    job = horovodrun(4, str(EXAMPLES / "pytorch_digits.py"), flags=["-H", "localhost:2,127.0.0.1:2"])
    assert_trained(job, 4)


def test_a_bad_result_is_a_failure(horovodrun: Any) -> None:
    job = horovodrun(2, str(EXAMPLES / "pytorch_digits.py"), "--epochs", "1", "--lr", "0.00001")
    assert job.code == 1, job.text
    assert "bitwise equal parameters" in job.out


def test_a_real_training_script_stops_and_resumes_on_another_number_of_ranks(horovodrun: Any, tmp_path: Path) -> None:
    script, checkpoint = str(EXAMPLES / "pytorch_training.py"), tmp_path / "digits.pt"
    first = horovodrun(2, script, "--checkpoint", str(checkpoint), "--stop-after", "4", "--epochs", "8")
    assert first.code == 0, first.text
    assert "Warning" not in first.err, first.text
    assert "ended after epoch 4: best validation loss" in first.out
    assert [path.name for path in tmp_path.iterdir()] == ["digits.pt"]
    rest = run_to_end([sys.executable, script, "--checkpoint", str(checkpoint), "--epochs", "8"])
    assert rest.code == 0, rest.text
    lines = rest.out.strip().splitlines()
    assert lines[0] == f"resuming after epoch 4 from {checkpoint}"
    assert lines[1].startswith("epoch 5/8: "), rest.text
    reached = re.search(r"epoch 8/8: .*accuracy (0\.\d+)", rest.out)
    assert reached, rest.text
    assert float(reached[1]) > 0.9


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 3])
def test_adasum_converges_where_others_do_not(horovodrun: Any, ranks: int) -> None:
    job = horovodrun(ranks, str(EXAMPLES / "pytorch_adasum.py"))
    assert job.code == 0, job.text
    verdicts = dict(re.findall(r"(Average|Sum|Adasum) +loss .*: (converged|did not converge)", job.out))
    others = "converged" if ranks == 1 else "did not converge"
    assert verdicts == {"Average": others, "Sum": others, "Adasum": "converged"}, job.text


@pytest.mark.parametrize("flags", [pytest.param([], marks=pytest.mark.slow), ["--fp16-allreduce", "--fp16"]])
def test_the_benchmark_prints_speeds(horovodrun: Any, flags: list[str]) -> None:
    small = ["--model", "small", "--batch-size", "2", "--image-size", "32", "--num-warmup-batches", "1"]
    job = horovodrun(
        2,
        str(EXAMPLES / "pytorch_synthetic_benchmark.py"),
        *small,
        "--num-batches-per-iter",
        "2",
        "--num-iters",
        "2",
        *flags,
    )
    assert job.code == 0, job.text
    assert re.search(r"Total img/sec on 2 [CG]PU rank\(s\): [\d.]+ \+-[\d.]+", job.out), job.text


def test_the_benchmark_model_has_the_shape_of_resnet50() -> None:
    program = (
        "import runpy; m = runpy.run_path('examples/pytorch_synthetic_benchmark.py', run_name='x')['MODELS'];"
        "p = list(m['resnet50']().parameters()); print(len(p), sum(x.numel() for x in p))"
    )
    job = run_to_end([sys.executable, "-c", program])
    assert job.out.split() == ["161", "25557032"], job.text


def test_each_example_is_described() -> None:
    sections = dict(re.findall(r"^## (\S+\.py)\n(.*?)(?=^## |\Z)", (EXAMPLES / "README.md").read_text(), re.M | re.S))
    for path in Path(EXAMPLES).glob("*.py"):
        options = re.findall(r'add_argument\(\s*"(--[\w-]+)"', path.read_text())
        named = re.findall(r"^\| `(--[\w-]+)`", sections[path.name], re.M)
        named += re.findall(r"`(--[\w-]+)`", sections[path.name].partition("\nOptions:")[2])
        assert sorted(named) == sorted(options), path.name


# Digits, with the network and the data of the example. One process takes the two ranks' batches together.
TWICE = """
import runpy, sys, torch
from torch.nn import functional
import horovod.torch as hvd

example = runpy.run_path(sys.argv[1], run_name="example")
EPOCHS, BATCH, RANKS = 20, 32, 2
hvd.init()
torch.set_num_threads(1)
images, labels = example["load_data"]()[0].tensors
# Double precision: in single precision 420 steps of momentum amplify the last digit to as much as a hundredth.
images = images.double()


def train(model, optimizer, parts):
    for epoch in range(EPOCHS):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        steps = len(labels) // (RANKS * BATCH)
        for batch in order[: steps * RANKS * BATCH].view(steps, RANKS, BATCH):
            rows = batch[parts].reshape(-1)
            optimizer.zero_grad()
            functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()


def build():
    torch.manual_seed(7)
    model = example["DigitNet"]().double()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


model, optimizer = build()
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
train(model, optimizer, [hvd.rank()])
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
if hvd.rank() == 0:
    twin, twin_optimizer = build()
    begin = torch.cat([p.detach().flatten() for p in twin.parameters()])
    train(twin, twin_optimizer, [0, 1])
    wanted = torch.cat([p.detach().flatten() for p in twin.parameters()])
    print("largest difference", (weights - wanted).abs().max().item(), "moved", (wanted - begin).abs().max().item())
hvd.barrier()
"""


@pytest.mark.slow
def test_two_ranks_equal_one_process_with_the_doubled_batch(horovodrun: Any) -> None:
    """The same parameters to 1e-5."""
    job = horovodrun(2, "-c", TWICE, str(EXAMPLES / "pytorch_digits.py"))
    assert job.code == 0, job.text
    words = job.out.split()
    assert float(words[words.index("difference") + 1]) < 1e-5, job.out
    assert float(words[words.index("moved") + 1]) > 0.1, job.out
