"""Simulated load tests with known truth.

A model of a server (:class:`ServerModel`) runs under the feedback rule of mattermost-load-test-ng's coordinator
(:class:`Coordinator`). A run gives a recording, as buildcompare reads it, and the truth behind it: supported users,
alerts, actions and, by :func:`shape_truth`, the early bumps, ramp and waves of the load curve. Faults and effects of
known size can be injected. Tests, benchmarks, examples and the bundled recordings (:mod:`loadsim.bundled`) use it.

>>> from loadsim import Coordinator, MetricEffect, RunSettings, simulate_run
>>> rule = Coordinator(max_users=500)
>>> base = RunSettings(type="bounded", coordinator=rule, duration_s=1200.0)
>>> new = RunSettings(
...     type="bounded", coordinator=rule, duration_s=1200.0, injections=(MetricEffect("avg-api-times", 1.2),)
... )
>>> a, b = (simulate_run(settings, seed=1).recording for settings in (base, new))
>>> ratio = b.find("avg-api-times").values / a.find("avg-api-times").values
>>> round(float(ratio[200]), 6)
1.2

=================  =========================================================================
`settings.py`      what is simulated: server, coordinator, noise, injections, random settings
`coordinator.py`   the feedback rule and the stop rule
`server.py`        the simulation, second by second
`measure.py`       recorded metrics and alert series, with noise
`labels.py`        label summaries, and series of each label's calls and times
`run.py`           :func:`simulate_run`: recording and truth
`shape.py`         the true shape of a load curve
`bundled.py`       the recordings in data/recordings (``make data``)
=================  =========================================================================
"""

import lazy_loader

# The public names stand in __init__.pyi; the command line imports this package without numpy.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
