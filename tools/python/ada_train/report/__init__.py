"""The parts of tools/report.py. Arrows: sections -> overview, pictures_* -> layers, style; page
makes HTML of sections; load (run folders as tables) and groups (many runs) are used by all."""
