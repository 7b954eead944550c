from .engine import NOTHING as NOTHING
from .engine import sections as sections
from .session import Answer as Answer
from .session import Pack as Pack
from .session import Session as Session
from .session import is_named as is_named
from .session import parse_sources as parse_sources
