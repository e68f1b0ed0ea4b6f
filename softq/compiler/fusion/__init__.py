"""Finding what one kernel computes: attentions, and what is done to the elements of a product."""
