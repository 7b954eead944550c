from . import sources as sources
from .session import Answer as Answer
from .session import Pack as Pack
from .session import Session as Session
from .views import packed_size as packed_size
