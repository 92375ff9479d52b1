"""The shipper: tails the streams of a task, masks secrets, makes batches, and frees the spool
behind what is acknowledged.
"""
