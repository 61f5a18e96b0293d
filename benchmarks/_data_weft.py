"""weft's side of data.py."""

import numpy as np
from _data_files import (
    ARRAY_BYTES,
    ARRAYS,
    BATCH,
    CROP,
    LARGE,
    LARGE_FILE,
    MEAN,
    PICTURE_FILE,
    PICTURES,
    RECORD_FILE,
    RECORDS,
    STD,
    TEXTS,
    tokens,
)
from _side import clock, serve

import weft.data as data


def pictures():
    it = data.ImageRecordIter(
        PICTURE_FILE,
        (3, CROP, CROP),
        BATCH,
        preprocess_threads=2,
        rand_crop=True,
        rand_mirror=True,
        **{f"mean_{c}": value for c, value in zip("rgb", MEAN, strict=True)},
        **{f"std_{c}": value for c, value in zip("rgb", STD, strict=True)},
    )

    def sample():
        it.reset()
        start = clock()
        for batch in it:
            batch.data[0].wait()
        return (clock() - start) / PICTURES

    sample()
    return sample


def records(path, count):
    def prepare():
        def sample():
            start = clock()
            total = 0
            for content in data.recordio.RecordReader(path):
                total += len(content)
            assert total
            return (clock() - start) / count

        sample()
        return sample

    return prepare


class Prebuilt(data.Dataset):
    """Gives the same batch of 1 MB each time."""

    def __init__(self):
        self.batch = np.zeros(ARRAY_BYTES // 4, np.float32)

    def __len__(self):
        return ARRAYS

    def gather(self, numbers):
        return self.batch


class Texts(data.Dataset):
    """Samples that Python makes."""

    def __len__(self):
        return TEXTS

    def __getitem__(self, k):
        return np.array(tokens(k)), k % 2


def texts():
    loader = data.DataLoader(Texts(), batch_size=BATCH, num_workers=2, mode="process")

    def sample():
        start = clock()
        for _ in loader:
            pass
        return (clock() - start) / TEXTS

    sample()
    return sample


def overhead(mode):
    def prepare():
        loader = data.DataLoader(Prebuilt(), batch_size=1, num_workers=2, mode=mode)

        def sample():
            start = clock()
            for _ in loader:
                pass
            return (clock() - start) / ARRAYS

        sample()
        return sample

    return prepare


if __name__ == "__main__":
    serve(
        {
            "pictures": pictures,
            "small records": records(RECORD_FILE, RECORDS),
            "large records": records(LARGE_FILE, LARGE),
            "Python samples": texts,
            "threads": overhead("thread"),
            "processes": overhead("process"),
        }
    )
