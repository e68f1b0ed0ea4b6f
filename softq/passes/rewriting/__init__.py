"""What passes that change a model share."""
