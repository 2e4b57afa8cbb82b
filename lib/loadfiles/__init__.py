"""Read the files of load testers; `buildcompare` finds this package by the entry point `buildcompare.formats`."""
