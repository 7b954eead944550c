"""Networks of several graphs: branches and loops inside of what runs them, and graphs side by side."""
