"""Numbers for a pair of tensors: msaccucmp's algorithms, users' own, and the choice between them."""
