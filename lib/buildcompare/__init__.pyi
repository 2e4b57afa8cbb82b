"""The public names, each with the module that defines it."""

from .api import Result as Result
from .api import VariantsReport as VariantsReport
from .api import compare as compare
from .api import compare_variants as compare_variants
from .api import investigate as investigate
from .comparison.matrix import variants_parameters as variants_parameters
from .config.errors import BuildcompareError as BuildcompareError
from .config.errors import InputError as InputError
from .config.errors import SourceError as SourceError
from .config.params import read_params as read_params
from .config.variants import read_variants as read_variants
from .labels.tables import label_table as label_table
from .labels.traffic_mix import traffic_mix as traffic_mix
from .load.curve import load_curve as load_curve
from .load.curve import steady_window as steady_window
from .load.phases import bumps as bumps
from .load.phases import ramp as ramp
from .load.phases import waves as waves
from .load.users import supported_users as supported_users
from .load.view import shift as shift
from .metrics.equal_load import LoadedRun as LoadedRun
from .metrics.equal_load import equal_load as equal_load
from .metrics.events import find_events as find_events
from .recordings.pgbench import pgbench_runs as pgbench_runs
from .recordings.recording import Recording as Recording
from .recordings.sources import pull as pull
from .recordings.sources import read as read
from .results.codes import Status as Status
from .results.codes import Verdict as Verdict
from .stats.changepoints import best_segmentation as best_segmentation
from .stats.changepoints import changepoints as changepoints
from .stats.effects import judge_levels as judge_levels
from .stats.levels import measure_level as measure_level
from .stats.noise import run_noise as run_noise
from .stats.planning import look_level as look_level
from .stats.planning import plan_runs as plan_runs
from .workbench.investigation import Investigation as Investigation
from .workbench.widgets import Workbench as Workbench

__all__: list[str]
__version__: str
