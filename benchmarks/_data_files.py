"""What the sides of data.py read: pictures and records in build/bench-data. Needs nothing but Python to find them."""

import struct
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "build" / "bench-data"
PICTURES, EDGE, CROP, BATCH = 512, 256, 224, 32
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
RECORDS, RECORD_BYTES = 1_000_000, 24
LARGE, LARGE_BYTES = 20_000, 20_000
ARRAY_BYTES = 1 << 20  # of a batch, to measure what the loader adds
ARRAYS = 400
PICTURE_FILE, RECORD_FILE, LARGE_FILE = (FOLDER / name for name in ("pictures.rec", "small.rec", "large.rec"))


TEXTS, WORDS, LENGTH = 4096, 200, 128  # of samples that Python makes


def tokens(k: int) -> list[int]:
    """Sample k, all in Python: words of a text, counted and numbered, cut or filled to LENGTH: 0.1 to 0.3 ms."""
    state, words = k * 2654435761 % (1 << 32), []
    for _ in range(WORDS):
        state = (1664525 * state + 1013904223) % (1 << 32)
        words.append(f"Word{state % 1000:03d},")
    text = " ".join(words)
    counts: dict[str, int] = {}
    for word in text.split():
        word = word.strip(",.").lower()
        counts[word] = counts.get(word, 0) + 1
    numbers = [int(word[4:]) for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    return (numbers + [0] * LENGTH)[:LENGTH]


def record(content: bytes) -> bytes:
    return struct.pack("<II", 0xCED7230A, len(content)) + content + b"\0" * (-len(content) % 4)


def make() -> None:
    """Write what is not there. Pictures are smooth noise of quality 90, about 19 kB each."""
    import io

    import numpy as np
    from PIL import Image

    FOLDER.mkdir(parents=True, exist_ok=True)
    if not PICTURE_FILE.exists():
        rng = np.random.default_rng(0)
        with open(PICTURE_FILE.with_suffix(".part"), "wb") as file:
            for k in range(PICTURES):
                small = Image.fromarray(rng.integers(0, 256, (24, 24, 3), dtype=np.uint8))
                large = np.asarray(small.resize((EDGE, EDGE), Image.Resampling.BICUBIC), np.int16)
                noisy = large + rng.integers(-6, 7, large.shape, dtype=np.int16)
                out = io.BytesIO()
                Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
                (FOLDER / f"{k:04d}.jpg").write_bytes(out.getvalue())
                file.write(record(struct.pack("<IfQQ", 0, k % 10, k, 0) + out.getvalue()))
        PICTURE_FILE.with_suffix(".part").rename(PICTURE_FILE)
    for path, count, size in ((RECORD_FILE, RECORDS, RECORD_BYTES), (LARGE_FILE, LARGE, LARGE_BYTES)):
        if not path.exists():
            one = record(b"x" * size)
            path.with_suffix(".part").write_bytes(one * count)
            path.with_suffix(".part").rename(path)
