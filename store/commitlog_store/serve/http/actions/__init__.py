"""Actions: what an admin changes from the pages, after a confirmation, with a line in the audit log."""
