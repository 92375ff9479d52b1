"""Why a job waits on Slurm: reasons, limits, what is free, what would start sooner."""
