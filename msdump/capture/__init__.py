"""From a plan to the steps that every tensor walks through."""
