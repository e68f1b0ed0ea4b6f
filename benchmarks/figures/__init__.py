"""The accuracy figures: models, settings, measuring and tables."""
