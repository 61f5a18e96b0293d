"""What every recorder of calls needs: launches written down as a graph, what they depend on, where they are from."""
