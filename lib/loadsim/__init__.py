"""Load tests with known truth: a server model under the load-test coordinator's real feedback rule."""

from loadsim.drawn import drawn_settings
from loadsim.injections import (
    Gap,
    Injection,
    LabelEffect,
    LostAgent,
    MetricEffect,
    NanStretch,
    Restart,
    Truncation,
)
from loadsim.run import SimulatedRun, Truth, simulate_run
from loadsim.settings import (
    Coordinator,
    LabelSet,
    MetricLevels,
    NoiseModel,
    RunSettings,
    ServerModel,
    Thresholds,
)
from loadsim.shape import ShapeTruth, shape_truth, shift_truth
from loadsim.traffic import Traffic

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
