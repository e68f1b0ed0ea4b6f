"""Steps of a program while they are gathered: the builder, what products and attentions are of, and their memory."""
