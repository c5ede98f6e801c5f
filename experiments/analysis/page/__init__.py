"""The page of a run, `report.html`: one file that asks the network for nothing. What records hold is text in it."""
