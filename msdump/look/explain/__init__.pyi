from .explanation import Explainer as Explainer
from .explanation import Explanation as Explanation
from .explanation import SlotAccount as SlotAccount
from .explanation import file_of as file_of
