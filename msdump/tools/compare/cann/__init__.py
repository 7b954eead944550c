"""What CANN's comparison prints: tables, details, advice."""
