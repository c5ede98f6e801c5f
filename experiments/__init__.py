"""Run things: settings in, records, tables and figures out; docs/internals/house.md is the map.

`main.py` has the flags; the packages stand in the order in which they may import each other, `settings` lowest.
"""
