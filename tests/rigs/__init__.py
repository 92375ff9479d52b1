"""Real daemons for tests, `make bench` and trying by hand: Slurm with and without accounting, sshd."""
