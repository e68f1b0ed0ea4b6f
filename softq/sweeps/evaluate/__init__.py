"""What a candidate gives on the data: the metric against the float model, and errors of the rows of each site."""
