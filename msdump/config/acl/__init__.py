"""acl.json: its models, its rules in CANN's order, its codes, the plan that follows."""
