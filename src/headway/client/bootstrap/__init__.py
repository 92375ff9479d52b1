"""Put in front of a job's PYTHONPATH by the agent, so that Python itself loads `sitecustomize`; see
there.
"""
