"""Kernels with and without pitfalls. A comment `finds: RULE` stands on each line in which the lint must find one."""
