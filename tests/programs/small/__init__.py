"""The small programs, one file for each idea; programs.py collects them."""
