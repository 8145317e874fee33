"""What every put and commit needs: puts, batches, flushing, dispatch, the state and the statistics of an open store."""
