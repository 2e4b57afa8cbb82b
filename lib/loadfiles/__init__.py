"""Read the files of load testers and monitors; `buildcompare` finds this package by entry points."""
