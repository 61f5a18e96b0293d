"""Data for training: datasets, samplers, and a loader that makes batches of them.

>>> import numpy as np
>>> import weft.data as data
>>> dataset = data.ArrayDataset(np.arange(10.0), np.arange(10))
>>> loader = data.DataLoader(dataset, batch_size=4)
>>> [y.numpy().tolist() for x, y in loader]
[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
"""

from weft.base.name_hints import add_hints as _add_hints
from weft.data import images as images
from weft.data import recordio as recordio
from weft.data import text as text
from weft.data import transforms as transforms
from weft.data.collator import Pad as Pad
from weft.data.collator import collate as collate
from weft.data.dataset import *  # noqa: F403
from weft.data.files import *  # noqa: F403
from weft.data.loader import DataLoader as DataLoader
from weft.data.mxnet import *  # noqa: F403
from weft.data.pool import WorkerError as WorkerError
from weft.data.progress import progress as progress
from weft.data.recordio import RecordDataset as RecordDataset
from weft.data.recordio import RecordStream as RecordStream
from weft.data.sample_context import rng as rng
from weft.data.sample_context import worker_info as worker_info
from weft.data.sampler import *  # noqa: F403

_add_hints(globals())
