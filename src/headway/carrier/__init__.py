"""The carrier: brings a job's folders to the node of a task, and sends them away. A process of its
own beside the agent, because it needs obstore and may wait for a network; the two speak through
files in the task's spool.
"""
