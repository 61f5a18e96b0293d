"""Iterators with the names and options of MXNet's, over weft's datasets and loader; `weft.data` has them all."""

from weft.data.mxnet.iterators import *  # noqa: F403
from weft.data.mxnet.pictures import *  # noqa: F403
