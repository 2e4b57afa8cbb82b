"""Read the files of load testers and monitors, and tables of earlier comparisons.

`buildcompare` finds this package by entry points.
"""
