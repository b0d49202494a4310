"""A small results tree with one of everything that `fedrepro verify` looks at."""

from pathlib import Path

import numpy as np

from fedrepro.data.dataset import FORMAT
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import Iid
from fedrepro.support import checksummed_json
from fedrepro.support.files import sha256_of
from support import tiny_run

RUN = "runs/test/blobs/fedavg/seed1"


def write_tree(root: Path) -> None:
    tiny_run.carry_out(root / RUN, tiny_run.run_spec(rounds=2))
    write_partition(root)
    write_data(root)
    write_download(root)
    checksummed_json.write(root / "tables/demo/ima/table_1.json", {}, "tables/demo/ima/table_1")


def write_partition(root: Path) -> None:
    spec = Iid.model_validate({"scheme": "iid", "clients": 3, "test_fraction": 0.2})
    for seed in (1, 2):
        made = make_partition(np.arange(60) % 4, None, spec, seed)
        made.save(root / f"partitions/blobs/iid/seed{seed}.npz")


def write_data(root: Path) -> None:
    folder = root / "data/blobs"
    folder.mkdir(parents=True)
    splits = {}
    for split, samples in (("train", 40), ("test", 30)):
        arrays = {}
        for name in (f"{split}_x", f"{split}_y"):
            file = folder / f"{name}.npy"
            np.save(file, np.arange(samples, dtype=np.uint8))
            about = {"size": file.stat().st_size, "sha256": sha256_of(file), "shape": [samples]}
            arrays[name] = about
        splits[split] = {"samples": samples, "arrays": arrays}
    meta = {"format": FORMAT, "splits": splits}
    checksummed_json.write(folder / "meta.json", meta, "data/blobs/meta")


def write_download(root: Path) -> None:
    folder = root / "downloads/blobs"
    folder.mkdir(parents=True)
    (folder / "raw").write_bytes(b"raw")
    files = {
        "raw": {"size": 3, "sha256": sha256_of(folder / "raw"), "from": "there"},
        "own/elsewhere": {"sha256": "0" * 64, "from": "your own"},
    }
    checksummed_json.write(folder / "files.json", {"files": files}, "downloads/blobs/files")
