"""What forms share: facts of a graph, and the parts of a softmax (exponentials, sums, quotients, masks)."""
