"""Who may do what: tokens and roles, what keeps other sites' pages out, and bounds of requests."""
