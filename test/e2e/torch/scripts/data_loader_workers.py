"""Data loaders with worker processes: forked, spawned and persistent, beside running collectives."""

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Squares(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.tensor(float(index)) ** 2


def main():
    import horovod.torch as hvd

    hvd.init()
    expected = sum(i * i for i in range(24)) / 24
    for options in (
        {"multiprocessing_context": "fork"},
        {"multiprocessing_context": "fork", "persistent_workers": True},
        {"multiprocessing_context": "spawn"},
    ):
        sampler = DistributedSampler(Squares(), num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
        loader = DataLoader(Squares(), batch_size=4, sampler=sampler, num_workers=1, **options)
        for epoch in range(2 if options.get("persistent_workers") else 1):
            sampler.set_epoch(epoch)
            total = torch.zeros(())
            for batch in loader:
                total += hvd.allreduce(batch.mean(), name="batch")
            assert abs(total.item() / len(loader) - expected) < 1e-3, (options, total.item() / len(loader), expected)
    hvd.barrier()


if __name__ == "__main__":
    main()
