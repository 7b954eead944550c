from . import arguments as arguments
from . import ir_proto as ir_proto
from . import ir_text as ir_text
