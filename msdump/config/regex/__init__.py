"""Regular expressions as std::regex reads them, in Python's words."""
