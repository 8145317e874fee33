"""What commands and pages ask of a reader: scans, one message, rates of topics, summaries of groups, plans of actions."""
