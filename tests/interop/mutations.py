"""Files with faults."""

INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF)


def mutated(content, rng):
    """The file with a few faults."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data) or 1)
        match rng.randrange(6):
            case 0:
                data[at : at + 1] = bytes([rng.choice(INTERESTING)])
            case 1:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 2:
                del data[at : at + rng.choice((1, 4, 8, 100))]
            case 3:
                data[at:at] = data[at : at + rng.choice((1, 4, 8, 100))]
            case 4:
                data[at : at + 8] = rng.choice((2**31 - 1, 2**32, 2**62, 2**63, 2**64 - 1)).to_bytes(
                    8, "little"
                )
            case 5:
                del data[at:]
    return bytes(data)
