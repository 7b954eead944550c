from .comparison import ComparisonError as ComparisonError
from .comparison import ModelComparison as ModelComparison
from .comparison import compare as compare
