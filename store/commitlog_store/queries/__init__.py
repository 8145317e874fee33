"""What commands and pages ask of a reader: scans, one message, rates, summaries of groups, plans of actions."""
