"""A login node over ssh: one connection with our relay at its other end."""
