"""The HTTP client that every view uses: requests, answers, following a job."""
