from .dump import SingleOperator as SingleOperator
from .dump import full_names as full_names
from .dump import select_compiled as select_compiled
