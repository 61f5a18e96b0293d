"""Commands for people: python -m weft.tools.NAME."""
