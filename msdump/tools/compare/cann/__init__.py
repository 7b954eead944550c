"""The output of CANN's comparison tool: tables, details, advice."""
