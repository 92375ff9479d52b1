"""The Slurm engine: sbatch, squeue, scontrol, sinfo and, where it works, sacct, here or over ssh.

`answer` reads what Slurm prints, `reason` says why a job waits, both pure. No other engine is known
here.
"""
