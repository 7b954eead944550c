from . import faults as faults
from . import plan as plan
from .faults import AclCode as AclCode
from .faults import AclFaults as AclFaults
from .faults import invalid as invalid
from .faults import invalid_argument as invalid_argument
from .faults import null_pointer as null_pointer
from .faults import out_of_turn as out_of_turn
