from .models import *  # noqa: F403  # type checkers see the models here; at run time they are imported on first use
from .rows import *  # noqa: F403
