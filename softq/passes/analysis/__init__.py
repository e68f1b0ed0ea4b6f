"""What is known of the softmaxes of a model before anything changes: candidates, their readers, and the policy."""
