"""Regular expressions as C++'s std::regex reads them, translated into those of Python's ``regex``."""
