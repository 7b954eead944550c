from . import arguments as arguments
from . import ir_proto as ir_proto
from . import ir_text as ir_text
from .arguments import tensor_text as tensor_text
from .ir_text import GraphStatements as GraphStatements
from .ir_text import Statement as Statement
from .ir_text import StatementOperand as StatementOperand
from .ir_text import Type as Type
