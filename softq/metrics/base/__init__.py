"""What metrics are made of: kinds, reductions over samples, intervals; and metrics of the user's own."""
