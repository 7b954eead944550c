from . import sources as sources
from .csv_tables import NOTHING as NOTHING
from .csv_tables import sections as sections
from .session import Answer as Answer
from .session import Pack as Pack
from .session import Session as Session
