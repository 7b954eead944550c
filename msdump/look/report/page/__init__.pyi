from .rendering import page as page
