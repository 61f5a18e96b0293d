"""One end of a cable that delays and loses frames: a network device eth0 here, and a socket to the other end.

cable.py SOCKET ADDRESS DELAY_S LOSS SEED COUNTS: run in a network namespace, with the number of the inherited socket.
It writes to the file COUNTS how many frames came, and how many of them were lost.
"""

import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
number, address, delay_s, loss, seed, counts = sys.argv[1:]
chance = random.Random(int(seed))
other = socket.socket(fileno=int(number))
tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TAP | IFF_NO_PI))
for words in (
    ["addr", "add", f"{address}/24", "dev", "eth0"],
    ["link", "set", "eth0", "up"],
    ["link", "set", "lo", "up"],
):
    subprocess.run(["ip", *words], check=True)
print("up", flush=True)
waiting, count, lost = [], 0, 0
while True:
    left = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
    ready, _, _ = select.select([tap, other], [], [], left)
    if tap in ready:
        frame = os.read(tap, 65536)
        count += 1
        if chance.random() < float(loss):
            lost += 1
        else:
            due = time.monotonic() + float(delay_s) * (0.7 + 0.6 * chance.random())
            heapq.heappush(waiting, (due, count, frame))
    if other in ready:
        frame = other.recv(65536)
        if not frame:  # the other end is gone
            break
        os.write(tap, frame)
    while waiting and waiting[0][0] <= time.monotonic():
        other.send(heapq.heappop(waiting)[2])
    if count % 50 == 1:
        Path(counts).write_text(f"{count} {lost}")
