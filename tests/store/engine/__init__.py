"""What every put and commit needs, tried on open stores."""
