"""The parts of tools/report.py. Arrows: sections -> overview, pictures_* -> layers, style; page
makes HTML of sections; load (run folders as tables), groups (many runs) and selection (which of
them are drawn) are used by all."""
DRAWN = 24  # runs (or means of seeds) whose layers are drawn, unless --draw names another number
MOST = 100  # of 70 layers each: more would be higher than the 65,535 rows that a picture may have
