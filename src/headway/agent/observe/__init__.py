"""What the agent finds out about a job by looking: progress, printed metrics, provenance."""
