"""What processes, node and GPUs use: small readers of /proc, cgroups and NVML, and the sampler that
the shipper drives.

`levels` is pure; `nvml` runs in a child of its own, so that a driver can hang without the agent.
Nothing here raises for a value that a system does not give: it is None. May call spool, wire and
model; only the shipper calls in.
"""
