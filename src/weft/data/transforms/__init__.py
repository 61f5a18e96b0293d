"""Random and fixed changes of pictures u8[h, w, c]; boxes and masks move with them.

A transform is called with a sample: a picture; a tuple whose first part is one, the others stay; or a dictionary with
"image" and, if they are there, "boxes" (float[n, 4 or more]: x0, y0, x1, y1 in pixels, then anything), "labels" (one
for each box) and "mask" (integers [h, w]). Boxes that leave the picture are cut at its edges, and removed with their
labels where less than a quarter of their area stays. What is random is drawn from the sample's own stream, which in a
loader is a function of (seed, epoch, index). Native code works without the GIL, so worker threads run at the same
time.

>>> import numpy as np
>>> from weft.data import transforms as T
>>> picture = np.zeros((40, 60, 3), np.uint8)
>>> change = T.Compose([T.RandomCrop(32), T.RandomHorizontalFlip(), T.Normalize(mean=127.5, std=127.5)])
>>> x = change(picture)
>>> x.shape, x.dtype, float(x.max())
((3, 32, 32), dtype('float32'), -1.0)
"""

from weft.base.name_hints import add_hints as _add_hints
from weft.data.transforms.base import Compose as Compose
from weft.data.transforms.base import Item as Item
from weft.data.transforms.base import RandomApply as RandomApply
from weft.data.transforms.base import RandomChoice as RandomChoice
from weft.data.transforms.base import Transform as Transform
from weft.data.transforms.colour import *  # noqa: F403
from weft.data.transforms.geometry import *  # noqa: F403
from weft.data.transforms.mix import *  # noqa: F403

_add_hints(globals())
