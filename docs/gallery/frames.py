"""Two data frames.

A wide frame has the seconds of a run as its index and a column for each metric.
"""

import numpy as np
import pandas as pd

import buildcompare as bc

rng = np.random.default_rng(1)
elapsed = np.arange(0.0, 5400.0, 5.0)


def run(seconds_per_call: float) -> pd.DataFrame:
    """A bounded test of 2000 users for 90 minutes."""
    users = np.minimum(elapsed * 4, 2000)
    times = seconds_per_call * rng.lognormal(0, 0.05, elapsed.size)
    return pd.DataFrame({"Number of Connected Devices": users, "Avg API times": times}, index=elapsed)


result = bc.compare(run(0.010), run(0.020), type="bounded", users=2000)
figure = result.plot("avg-api-times").figure
