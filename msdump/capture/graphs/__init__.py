"""Files that show graphs: MindSpore's, and those of the graph engine."""
