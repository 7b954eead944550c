"""The page of a report: one file of HTML, with style sheet, program and data in it."""
