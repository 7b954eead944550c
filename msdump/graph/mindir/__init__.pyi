from .expansions import COMPOSITES as COMPOSITES
from .file import is_mindir as is_mindir
from .file import read as read
from .model import TranslatedModel as TranslatedModel
from .standard import facts_of as facts_of
from .standard import kept_facts as kept_facts
from .standard import standard as standard
