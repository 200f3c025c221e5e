"""Does a run survive being killed fifty times? `make soak` (tests run two kills of the same kind).

python benchmarks/soak.py [KILLS]
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "train"))

import numpy as np
from small_runs import SMALL, assert_equal_runs, train
from test_interruptions import killed_run

from logo_ssl.run import Run

if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    kills = runs = 0
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        data = f"{folder}/data.npz"
        np.savez(data, train_images=rng.integers(0, 256, (48, 16, 16, 3), np.uint8))
        whole, _ = train(SMALL, data, f"{folder}/whole", epochs=8, checkpoint_minutes=1e-9)
        while kills < wanted:
            runs += 1
            kills += killed_run(data, f"{folder}/{runs}", min(wanted - kills, 6), seed=1000 * runs)
            assert_equal_runs(whole, Run(f"{folder}/{runs}"))
            print(f"{kills} of {wanted} kills survived in {runs} runs, all equal", file=sys.stderr, flush=True)
    print(json.dumps({"benchmark": "soak", "kills": kills, "runs": runs, "equal": runs}))
