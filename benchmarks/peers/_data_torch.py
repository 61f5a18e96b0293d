"""PyTorch's side of data.py: DataLoader with Pillow, the usual way."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import numpy as np
import torch
from _data_files import (
    ARRAY_BYTES,
    ARRAYS,
    BATCH,
    CROP,
    EDGE,
    FOLDER,
    MEAN,
    PICTURES,
    STD,
    TEXTS,
    tokens,
)
from _side import clock, serve
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self):
        self.paths = [str(FOLDER / f"{k:04d}.jpg") for k in range(PICTURES)]
        self.mean, self.std = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, k):
        with Image.open(self.paths[k]) as file:
            image = file.convert("RGB")
        y, x = torch.randint(0, EDGE - CROP + 1, (2,)).tolist()
        image = image.crop((x, y, x + CROP, y + CROP))
        if torch.rand(()) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
        return (tensor - self.mean) / self.std, k % 10


class Texts(Dataset):
    def __len__(self):
        return TEXTS

    def __getitem__(self, k):
        return torch.tensor(tokens(k)), k % 2


class Prebuilt(Dataset):
    def __init__(self):
        self.batch = torch.zeros(ARRAY_BYTES // 4)

    def __len__(self):
        return ARRAYS

    def __getitem__(self, k):
        return self.batch


def epochs(dataset, count, **options):
    loader = DataLoader(dataset, num_workers=2, persistent_workers=True, **options)

    def sample():
        start = clock()
        for _ in loader:
            pass
        return (clock() - start) / count

    sample()
    return sample


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(
        {
            "pictures": lambda: epochs(Pictures(), PICTURES, batch_size=BATCH),
            "Python samples": lambda: epochs(Texts(), TEXTS, batch_size=BATCH),
            "processes": lambda: epochs(Prebuilt(), ARRAYS, batch_size=None),
        }
    )
