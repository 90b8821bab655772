"""The parts of tools/report.py. Arrows: page -> sections -> pictures_* -> layers, style, formats;
load (run folders as tables) is used by all of them."""
