"""How parallel regions bear other threads: weft's team against libgomp under several spin policies.

./dev bench threads

One region is a wide operation of the engine. Each is timed alone, and beside a thread that pushes small operations as
fast as it can. docs/design/threads.md draws the conclusions.
"""

import json
import os
import subprocess
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "build" / "native-bench" / "weft_native_bench"
POLICIES = ["0", "1000", "10000", "default"]
REGIONS_US = [20, 1000]


def rows(team, us, policy):
    env = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    if policy != "default":
        env["GOMP_SPINCOUNT"] = policy
    command = [PROGRAM, "regions", team, str(us)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    print(f"{'region':>8} {'team':<24} {'alone':>9} {'beside a pusher':>16} {'ratio':>6}   us, minimum of 5")
    for us in REGIONS_US:
        cases = [("team", "default")]
        cases += [(team, policy) for policy in POLICIES for team in ("omp-static", "omp-dynamic")]
        for team, policy in cases:
            alone, beside = (row["min"] for row in rows(team, us, policy))
            name = team if team == "team" else f"{team}, spin {policy}"
            print(f"{us:>6} us {name:<24} {alone:>9.1f} {beside:>16.1f} {beside / alone:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
