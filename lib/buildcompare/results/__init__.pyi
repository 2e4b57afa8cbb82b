from .models import *  # noqa: F403  # so that types are known, without importing them
from .rows import *  # noqa: F403
