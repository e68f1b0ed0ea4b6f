"""A Relax program as steps with their memory."""
