"""Recognising functions that models are trained with in place of a softmax, by the values that they give."""
