"""What the loader cannot do yet; known_gaps.txt says why."""

import numpy as np

import weft.data as data


def test_workers():
    loader = data.DataLoader(data.ArrayDataset(np.arange(4)), batch_size=2, num_workers=2)
    assert [batch.numpy().tolist() for batch in loader] == [[0, 1], [2, 3]]
