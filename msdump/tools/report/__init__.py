"""A report on a dump: what is wrong, the run, all operators with their statistics over the iterations."""
