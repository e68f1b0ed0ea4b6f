"""The steps of products, attentions and convolutions on processors."""
