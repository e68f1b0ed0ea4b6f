"""Convolutions of groups of few channels on processors."""
