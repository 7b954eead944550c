"""The smallest part of a model whose exchange explains why its results are not those of another one."""
