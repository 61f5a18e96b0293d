"""Pictures as bytes of files and as arrays u8[h, w, c]: decoding, encoding, changing their size.

JPEG by simplejpeg where it is installed, everything else by Pillow: `pip install weft[vision]`.
"""

from __future__ import annotations

import functools
import io
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import _core
from weft.base import flags
from weft.base.name_hints import add_hints as _add_hints

__all__ = ["EXTENSIONS", "FILTERS", "crop_resized", "decode", "encode", "read", "resize"]

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FILTERS = ("nearest", "linear", "area", "cubic")
CHANNELS = {"RGB": 3, "L": 1, "RGBA": 4}
MAX_SCRATCH_BYTES = 64 << 20  # that each thread keeps


@functools.cache
def _simplejpeg() -> Any:
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


@functools.cache
def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("images: needs Pillow: pip install weft[vision]") from None
    return Image


def check_size(height: int, width: int) -> None:
    """Raises ValueError for a picture of more than WEFT_MAX_PICTURE_PIXELS: a small file may say any size."""
    limit = flags.get("WEFT_MAX_PICTURE_PIXELS")
    if height * width > limit:
        raise ValueError(
            f"decode: a picture of {height} x {width} has more than {limit} pixels (WEFT_MAX_PICTURE_PIXELS)"
        )


def _as_bytes(picture: Any, pillow: Any) -> Any:
    """A picture of 8 bits a channel: of 16 bits the upper 8. Raises ValueError for one of 32 bits."""
    if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format == "PNG"):
        return pillow.fromarray((np.asarray(picture).astype(np.uint32) >> 8).astype(np.uint8))
    if picture.mode in ("I", "F"):
        raise ValueError("its pixels have 32 bits, and no known range")
    return picture


def decode(content: bytes, mode: str = "RGB", *, min_size: tuple[int, int] | None = None) -> np.ndarray:
    """The picture of a file's bytes: u8[h, w, 3] for mode "RGB", [h, w, 1] for "L", [h, w, 4] for "RGBA".

    min_size (h, w): a JPEG may be decoded at 1/8 to 7/8 of its size, where that is not below min_size; much faster.
    Of pixels with 16 bits the upper 8 are taken. Raises ValueError for what is not a picture, or cut off, has pixels of
    32 bits, or more pixels than WEFT_MAX_PICTURE_PIXELS, which is checked before they are decoded.

    >>> picture = np.full((8, 8, 3), 200, np.uint8)
    >>> decode(encode(picture, ".png")).shape
    (8, 8, 3)
    """
    if mode not in CHANNELS:
        raise ValueError(f"decode: mode must be one of {', '.join(CHANNELS)}, got {mode!r}")
    jpeg = _simplejpeg()
    if jpeg is not None and content[:2] == b"\xff\xd8" and mode != "RGBA":
        min_h, min_w = min_size or (0, 0)
        try:
            header = jpeg.decode_jpeg_header(content)
        except ValueError:
            header = None
        if header is not None:
            check_size(*header[:2])
        try:
            image: np.ndarray = jpeg.decode_jpeg(
                content, "GRAY" if mode == "L" else mode, min_height=min_h, min_width=min_w, min_factor=1
            )
            return image
        except ValueError:
            pass  # unsupported colours, or damage: Pillow decides
    pillow = _pillow()
    try:
        with pillow.open(io.BytesIO(content)) as picture:
            check_size(picture.height, picture.width)
            if min_size is not None and picture.format == "JPEG":
                picture.draft(mode, (min_size[1], min_size[0]))
            image = np.array(_as_bytes(picture, pillow).convert(mode))
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        if str(error).startswith("decode: "):
            raise
        raise ValueError(f"decode: {len(content)} bytes that are not a picture: {error}") from error
    return image.reshape(*image.shape[:2], CHANNELS[mode])


class _Scratch(threading.local):
    memory = np.empty(0, np.uint8)


_scratch = _Scratch()


def decode_in_scratch(
    content: bytes, mode: str = "RGB", *, min_size: tuple[int, int] | None = None
) -> np.ndarray:
    """decode() into this thread's scratch memory where that can be: valid until the next call on this thread.

    Fresh memory for each picture costs a page fault for every 4 KiB of it.
    """
    jpeg = _simplejpeg()
    if jpeg is None or min_size is not None or content[:2] != b"\xff\xd8" or mode == "RGBA":
        return decode(content, mode, min_size=min_size)
    try:
        h, w = jpeg.decode_jpeg_header(content)[:2]
        size_bytes = h * w * CHANNELS[mode]
        if size_bytes > MAX_SCRATCH_BYTES or h * w > flags.get("WEFT_MAX_PICTURE_PIXELS"):
            return decode(content, mode)
        if len(_scratch.memory) < size_bytes:
            _scratch.memory = np.empty(size_bytes, np.uint8)
        image: np.ndarray = jpeg.decode_jpeg(content, "GRAY" if mode == "L" else mode, buffer=_scratch.memory)
        return image
    except ValueError:
        return decode(content, mode)


def encode(image: np.ndarray, extension: str = ".jpg", *, quality: int = 95) -> bytes:
    """The bytes of a file of this kind; image: u8[h, w, c] with 1, 3 or (not for JPEG) 4 channels, or u8[h, w].

    Raises ValueError for other arrays, or a kind that Pillow cannot write.
    """
    picture = np.ascontiguousarray(image if np.ndim(image) == 3 else np.asarray(image)[:, :, None])
    if picture.dtype != np.uint8 or picture.shape[2] not in (1, 3, 4):
        raise ValueError(
            f"encode: takes u8[h, w, c] with c 1, 3 or 4, got {picture.dtype}{list(np.shape(image))}"
        )
    jpeg = _simplejpeg()
    if jpeg is not None and extension.lower() in (".jpg", ".jpeg") and picture.shape[2] != 4:
        space = "GRAY" if picture.shape[2] == 1 else "RGB"
        content: bytes = jpeg.encode_jpeg(
            picture, quality, space, colorsubsampling="Gray" if space == "GRAY" else "420"
        )
        return content
    pillow, out = _pillow(), io.BytesIO()
    kind = pillow.registered_extensions().get(extension.lower())
    if kind is None:
        raise ValueError(f"encode: no kind of file ends in {extension!r}")
    array = picture[:, :, 0] if picture.shape[2] == 1 else picture
    pillow.fromarray(array).save(out, kind, **({"quality": quality} if kind in ("JPEG", "WEBP") else {}))
    return out.getvalue()


def read(
    path: str | os.PathLike[str], mode: str = "RGB", *, min_size: tuple[int, int] | None = None
) -> np.ndarray:
    """The picture in a file; see decode()."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        return decode(content, mode, min_size=min_size)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def pixels(image: Any) -> np.ndarray:
    """A picture as the native functions take it: u8[h, w, c], the pixels of a row side by side."""
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.dtype != np.uint8 or array.ndim != 3 or not 1 <= array.shape[2] <= 4 or not array.size:
        raise ValueError(
            f"a picture is u8[h, w, c] with 1 to 4 channels, got {array.dtype}{list(array.shape)}"
        )
    # A crop is fine: rows may be apart. Mirrored or transposed pictures are copied.
    side_by_side = array.strides[2] == 1 and array.strides[1] == array.shape[2] and array.strides[0] >= 0
    return array if side_by_side else np.ascontiguousarray(array)


def resize(image: np.ndarray, size: Sequence[int], filter: str = "area") -> np.ndarray:
    """The picture in another size (h, w).

    filter: "area", triangles wide enough to see every pixel (antialiased, as Pillow's bilinear); "cubic", as wide;
    "linear", of 2 x 2 pixels (as OpenCV's); "nearest".

    >>> resize(np.full((4, 6, 3), 7, np.uint8), (2, 2)).tolist()[0]
    [[7, 7, 7], [7, 7, 7]]
    """
    picture = pixels(image)
    return crop_resized(picture, (0, 0, *picture.shape[:2]), size, filter)


def crop_resized(
    image: np.ndarray, part: Sequence[float], size: Sequence[int], filter: str = "area", mirror: bool = False
) -> np.ndarray:
    """The part (y, x, h, w) of a picture in another size (h, w), mirrored or not: in one pass."""
    picture = pixels(image)
    h, w = map(int, size)
    if h < 1 or w < 1:
        raise ValueError(f"resize: the new size is {h} x {w}")
    out = np.empty((h, w, picture.shape[2]), np.uint8)
    y, x, part_h, part_w = map(float, part)
    if not mirror and (y, x, part_h, part_w) == (int(y), int(x), h, w):
        _core.image_crop(picture, out, int(y), int(x), False)
    else:
        _core.image_resize(picture, out, y, x, part_h, part_w, filter, mirror)
    return out


_add_hints(globals())
