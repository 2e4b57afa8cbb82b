"""The public names, each with the module that defines it."""

from .labels import Traffic as Traffic
from .run import SimulatedRun as SimulatedRun
from .run import Truth as Truth
from .run import simulate_run as simulate_run
from .settings import Coordinator as Coordinator
from .settings import Gap as Gap
from .settings import Injection as Injection
from .settings import LabelEffect as LabelEffect
from .settings import LabelSet as LabelSet
from .settings import LostAgent as LostAgent
from .settings import MetricEffect as MetricEffect
from .settings import MetricLevels as MetricLevels
from .settings import NanStretch as NanStretch
from .settings import NoiseModel as NoiseModel
from .settings import Restart as Restart
from .settings import RunSettings as RunSettings
from .settings import ServerModel as ServerModel
from .settings import Thresholds as Thresholds
from .settings import Truncation as Truncation
from .settings import random_settings as random_settings
from .shape import ShapeTruth as ShapeTruth
from .shape import shape_truth as shape_truth
from .shape import shift_truth as shift_truth
