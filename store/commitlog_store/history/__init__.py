"""A store whose head is in an archive: both read as one."""
