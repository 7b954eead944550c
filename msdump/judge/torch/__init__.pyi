from .comparison import check_export as check_export
from .comparison import torch_comparison as torch_comparison
from .golden import PREFIX as PREFIX
from .golden import Golden as Golden
from .golden import Source as Source
from .golden import load_source as load_source
from .hooks import golden_of as golden_of
from .tree import rerun_on_tree as rerun_on_tree
