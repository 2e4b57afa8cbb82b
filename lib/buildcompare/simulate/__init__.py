"""Load tests with known truth: a server model under the load-test coordinator's real feedback rule."""

from buildcompare.simulate.drawn import drawn_settings
from buildcompare.simulate.injections import (
    Gap,
    Injection,
    LabelEffect,
    LostAgent,
    MetricEffect,
    NanStretch,
    Restart,
    Truncation,
)
from buildcompare.simulate.run import SimulatedRun, Truth, simulate_run
from buildcompare.simulate.settings import (
    Coordinator,
    LabelSet,
    MetricLevels,
    NoiseModel,
    RunSettings,
    ServerModel,
    Thresholds,
)
from buildcompare.simulate.shape import ShapeTruth, shape_truth, shift_truth
from buildcompare.simulate.traffic import Traffic

__all__ = [
    "Coordinator",
    "Gap",
    "Injection",
    "LabelEffect",
    "LabelSet",
    "LostAgent",
    "MetricEffect",
    "MetricLevels",
    "NanStretch",
    "NoiseModel",
    "Restart",
    "RunSettings",
    "ServerModel",
    "ShapeTruth",
    "SimulatedRun",
    "Thresholds",
    "Traffic",
    "Truncation",
    "Truth",
    "drawn_settings",
    "shape_truth",
    "shift_truth",
    "simulate_run",
]
