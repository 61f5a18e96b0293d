"""How long random tests take, and from which seed they draw.

Other programs every day. WEFT_TEST_SEED fixes which; WEFT_TEST_SECONDS is how long a test marked full draws them.
"""

import datetime
import os
import time

SEED = int(os.environ.get("WEFT_TEST_SEED", datetime.date.today().toordinal()))


def seeds(first, count):
    """`count` of today's seeds; `first` keeps tests apart."""
    start = SEED * 100_000 + first
    return range(start, start + count)


def seeds_for_a_while(first, seconds=600.0):
    """Today's seeds, until `seconds` have passed, or WEFT_TEST_SECONDS."""
    end = time.monotonic() + float(os.environ.get("WEFT_TEST_SECONDS", seconds))
    seed = SEED * 100_000 + first
    while time.monotonic() < end:
        yield seed
        seed += 1


def shrunk(item, smaller, is_wrong, limit=200):
    """The item made smaller, in as many ways as smaller(item) gives, as long as is_wrong(item)."""
    tries, changed = 0, True
    while changed:
        changed = False
        for candidate in smaller(item):
            tries += 1
            if tries > limit:
                return item
            if is_wrong(candidate):
                item, changed = candidate, True
                break
    return item


def each_left_out(items):
    """The sequence without each of its items in turn."""
    return (items[:k] + items[k + 1 :] for k in range(len(items)))
