"""A hundred small programs, run in every way that weft has to run a program."""
