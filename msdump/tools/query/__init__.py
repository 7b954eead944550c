"""Questions in SQL about dumps, packs of dumps and results of comparisons."""
