from .body import CallOperand as CallOperand
from .model import InputCountError as InputCountError
from .model import needed_values as needed_values
from .model import single_operator as single_operator
