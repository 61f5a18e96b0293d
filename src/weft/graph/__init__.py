"""Graphs of operators, from inputs to outputs: how they are built, differentiated, rewritten, saved and drawn."""
