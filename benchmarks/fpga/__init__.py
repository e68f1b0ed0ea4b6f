"""Cores for FPGAs through synthesis, placement and routing, and simulation."""
