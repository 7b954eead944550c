"""Writers at the end of the steps; they differ in what one artifact holds: a tensor, an operator, a row."""
