"""Which load tests may there be? Settings drawn from the whole range in which the simulator is like real servers."""

from __future__ import annotations

import math

import numpy as np

from loadsim.settings import Coordinator, NoiseModel, RunSettings, ServerModel

SEEDS_APART = 10_000
"""Settings and runs of one seed share no random numbers."""


def drawn_settings(seed: int) -> RunSettings:
    """Settings of one unbounded test: any size, warm or cold caches, any pace of the coordinator, calm or noisy.

    Half of the servers start with cold caches. Their product of gain and requests stays below where the real stop
    rule would find its level among the early bumps.
    """
    rng = np.random.default_rng(SEEDS_APART + seed)

    def logarithmic(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    cold = bool(rng.integers(2))
    step = int(rng.choice([4, 8, 8, 8, 16]))
    return RunSettings(
        server=ServerModel(
            capacity_users=logarithmic(4000, 20_000),
            load_exponent=rng.uniform(1.0, 1.4),
            login_weight_s=rng.uniform(0.09, 0.3),
            login_work_s=rng.uniform(40, 80),
            connect_s=rng.uniform(8, 16),
            client_steepness=rng.uniform(2.5, 4),
            cold_gain=rng.uniform(1.5, 6) if cold else rng.uniform(0, 0.3),
            cold_requests=logarithmic(2000, 30_000),
        ),
        coordinator=Coordinator(
            users_inc=step, users_dec=step, evaluate_every_s=rng.uniform(1.0, 2.2), rest_s=rng.uniform(1.5, 3)
        ),
        noise=NoiseModel(pressure_sd=rng.uniform(0.012, 0.06), pressure_time_s=rng.uniform(40, 90)),
    )
