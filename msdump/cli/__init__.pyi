from .monitors import LossMonitor as LossMonitor
from .monitors import ProgressBar as ProgressBar
from .program import main as main
