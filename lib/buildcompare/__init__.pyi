"""The public names, each with the module that defines it."""

import investigation.api
import investigation.measure
import investigation.widgets
import labmatrix.analysis
import labmatrix.api
import labmatrix.params
import loadfiles.pgbench
import loadwatch.watch

from .api import Result as Result
from .api import compare as compare
from .comparison.measure import TestView as TestView
from .comparison.reading import parameters as parameters
from .config.catalogue import Catalogue as Catalogue
from .config.catalogue import Metric as Metric
from .config.errors import BuildcompareError as BuildcompareError
from .config.errors import InputError as InputError
from .config.errors import SourceError as SourceError
from .config.params import Comparison as Comparison
from .config.params import RunFiles as RunFiles
from .config.params import read_params as read_params
from .history.chain import Chain as Chain
from .history.chain import Step as Step
from .history.view import History as History
from .history.view import read_history as read_history
from .labels.tables import label_table as label_table
from .labels.traffic_mix import TrafficMix as TrafficMix
from .labels.traffic_mix import traffic_mix as traffic_mix
from .load.curve import LoadCurve as LoadCurve
from .load.curve import SteadyState as SteadyState
from .load.curve import Turn as Turn
from .load.curve import load_curve as load_curve
from .load.curve import steady_window as steady_window
from .load.phases import Beginning as Beginning
from .load.phases import Ramp as Ramp
from .load.phases import Waves as Waves
from .load.phases import WaveTest as WaveTest
from .load.phases import bumps as bumps
from .load.phases import ramp as ramp
from .load.phases import waves as waves
from .load.ramps import Shift as Shift
from .load.ramps import shift as shift
from .load.users import supported_users as supported_users
from .metrics.equal_load import LoadedRun as LoadedRun
from .metrics.equal_load import MetricAtLoad as MetricAtLoad
from .metrics.equal_load import equal_load as equal_load
from .metrics.events import MetricEvent as MetricEvent
from .metrics.events import RunEvents as RunEvents
from .metrics.events import find_events as find_events
from .recordings.recording import Recording as Recording
from .recordings.series import LabelSummary as LabelSummary
from .recordings.series import Measurement as Measurement
from .recordings.series import Note as Note
from .recordings.series import Series as Series
from .recordings.sources import pull as pull
from .recordings.sources import read as read
from .results.base import Reason as Reason
from .results.codes import Status as Status
from .results.codes import Verdict as Verdict
from .results.models import Estimate as Estimate
from .results.models import Event as Event
from .results.models import Finding as Finding
from .results.models import Results as Results
from .results.models import RunResult as RunResult
from .results.models import SeriesCoverage as SeriesCoverage
from .results.models import TestResult as TestResult
from .results.rows import Decided as Decided
from .results.rows import ErrorRateResult as ErrorRateResult
from .results.rows import LabelResult as LabelResult
from .results.rows import LoadAdjustedResult as LoadAdjustedResult
from .results.rows import MetricResult as MetricResult
from .results.rows import MixMover as MixMover
from .results.rows import SupportedUsersResult as SupportedUsersResult
from .results.rows import TrafficMixResult as TrafficMixResult
from .results.users import Bump as Bump
from .results.users import RampUp as RampUp
from .results.users import RampUps as RampUps
from .stats.changepoints import Ar1Noise as Ar1Noise
from .stats.changepoints import Changepoints as Changepoints
from .stats.changepoints import best_segmentation as best_segmentation
from .stats.changepoints import changepoints as changepoints
from .stats.effects import Effect as Effect
from .stats.effects import TestedEffect as TestedEffect
from .stats.effects import judge_levels as judge_levels
from .stats.levels import Level as Level
from .stats.levels import measure_level as measure_level
from .stats.noise import Noise as Noise
from .stats.noise import run_noise as run_noise
from .stats.planning import FurtherRuns as FurtherRuns
from .stats.planning import look_level as look_level
from .stats.planning import plan_runs as plan_runs

# Registered in pyproject.toml, since only relative imports can stand above.
Ended = loadwatch.watch.Ended
Investigation = investigation.measure.Investigation
Variants = labmatrix.params.Variants
VariantsReport = labmatrix.api.VariantsReport
Workbench = investigation.widgets.Workbench
compare_variants = labmatrix.api.compare_variants
investigate = investigation.api.investigate
pgbench_runs = loadfiles.pgbench.pgbench_runs
read_variants = labmatrix.params.read_variants
variants_parameters = labmatrix.analysis.variants_parameters
watch = loadwatch.watch.watch

__all__: list[str]
__version__: str
