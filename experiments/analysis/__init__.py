"""From records to statistics, tables, figures and the error budget.

Nothing here trains, and no record is edited.
"""
