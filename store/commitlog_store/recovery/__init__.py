"""Opening and recovering a store: the decision how to open it, the scan of the log, and the repair of its parts."""
