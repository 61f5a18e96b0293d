"""MXNet's side of data.py."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import mxnet as mx
from _data_files import (
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
)
from _side import clock, serve


def pictures():
    it = mx.io.ImageRecordIter(
        path_imgrec=str(PICTURE_FILE),
        data_shape=(3, CROP, CROP),
        batch_size=BATCH,
        preprocess_threads=2,
        rand_crop=True,
        rand_mirror=True,
        verbose=False,
        **{f"mean_{c}": value for c, value in zip("rgb", MEAN, strict=True)},
        **{f"std_{c}": value for c, value in zip("rgb", STD, strict=True)},
    )

    def sample():
        it.reset()
        start = clock()
        for batch in it:
            batch.data[0].wait_to_read()
        return (clock() - start) / PICTURES

    sample()
    return sample


def records(path, count):
    def prepare():
        def sample():
            reader = mx.recordio.MXRecordIO(str(path), "r")
            start = clock()
            total = 0
            while (content := reader.read()) is not None:
                total += len(content)
            assert total
            return (clock() - start) / count

        sample()
        return sample

    return prepare


if __name__ == "__main__":
    serve(
        {
            "pictures": pictures,
            "small records": records(RECORD_FILE, RECORDS),
            "large records": records(LARGE_FILE, LARGE),
        }
    )
