"""Tools for people: commands (python -m weft.tools.NAME), and records of what a program does."""
