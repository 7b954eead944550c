from .losses import LOSSES as LOSSES
from .optimizers import OPTIMIZERS as OPTIMIZERS
from .step_graph import eval_graph as eval_graph
from .step_graph import step_graph as step_graph
from .step_graph import write_step as write_step
